"""Readers of one source each: bounded and checked, and read only. `penstock assess` joins what they return."""
