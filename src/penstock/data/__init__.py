"""Where data is and how it comes along: the checkpoints of jobs, so far."""
