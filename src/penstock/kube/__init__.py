"""A small Kubernetes client: credentials (`access`), requests (`client`), list and watch (`informer`), our labels and
annotations (`annotations`). Drivers, the front door and shadow mode use it; it imports none of them.

It needs the extra `penstock[kubernetes]`. Callers import it inside functions, so that `--help` works without it and
stays quick.
"""
