"""What was recorded: one row a step, appended before anyone acts, and read by everything that reports."""
