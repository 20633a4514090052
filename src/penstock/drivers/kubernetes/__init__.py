"""Sites that are Kubernetes clusters: an attempt is a Job of its own there."""
