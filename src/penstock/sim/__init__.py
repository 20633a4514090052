"""Simulation: traces of jobs in, a simulated world behind the live engine, reports out."""
