"""One scheduling cycle, from verdicts to idle nodes: reads the state, records promises, changes nothing else."""
