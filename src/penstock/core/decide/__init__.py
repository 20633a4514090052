"""One scheduling cycle, from verdicts to idle nodes: reads the state and records promises."""
