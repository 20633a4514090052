"""Jobs to simulate: recorded traces in several formats, and generated load."""
