"""Measurements. Each prints its interpreter; ratios within one run mean more than seconds, the machine is noisy."""
