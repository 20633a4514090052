"""The engine with a real clock, real sites and a durable journal. `plane.py` is the one door; wiring and API use it."""
