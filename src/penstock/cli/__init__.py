"""The command line: converts what a person typed, passes it on, and shows the answer. Decides nothing."""
