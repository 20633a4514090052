"""One observed month of a company's GPUs, read from what it already has, and what follows from it. Read only."""
