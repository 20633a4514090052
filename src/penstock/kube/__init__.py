"""Speaking to Kubernetes: who may be asked (`access`), one request (`client`), staying in step (`informer`), our words
there (`annotations`). Drivers, the front door and shadow mode use it; it knows nothing of them.

An extra: `pip install 'penstock[kubernetes]'`. Whoever needs it imports it inside a function, off the way of `--help`.
"""
