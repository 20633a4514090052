"""The command line: converts what a person typed, calls the API, and prints the answer. It decides nothing."""
