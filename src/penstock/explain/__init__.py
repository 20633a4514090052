"""Why, in words: reasons and events as sentences, and one job's story. Made from what was recorded and nothing else."""
