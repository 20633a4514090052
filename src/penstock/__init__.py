"""Penstock: governed cloud bursting for GPU training."""

__version__ = "0.1.0"
