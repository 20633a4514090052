"""Kubernetes: what its objects say and how one speaks to a cluster. Drivers, front door and commands use it."""
