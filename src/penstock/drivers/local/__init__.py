"""Driver for sites on this machine: real processes, with slots for GPUs."""
