"""Sites on this machine: real processes, with slots that stand for GPUs."""
