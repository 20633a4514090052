"""Analysis of simulated runs: policy comparison, lower bound, shadow mode."""
