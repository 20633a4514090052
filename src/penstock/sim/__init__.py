"""Simulation: traces of jobs in, a simulated world behind the engine, reports out."""
