"""What simulated runs mean: reports, comparisons, the lower bound, shadow mode."""
