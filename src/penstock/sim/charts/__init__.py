"""Charts and pages drawn from a comparison."""
