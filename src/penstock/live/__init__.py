"""The live control plane: the engine with a real clock, real sites and a durable journal. `plane.py` is its interface;
wiring, API and front door use it.
"""
