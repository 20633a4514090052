"""Driver for sites that are Kubernetes clusters: each attempt is one execution Job."""
