"""Placement policies: the production one and the published baselines, by name."""
