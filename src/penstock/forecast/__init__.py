"""What is coming: GPUs wanted by hour for the next days, from the hours that were. Pure: no clock, no files."""
