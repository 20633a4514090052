"""The scheduling engine: facts come in as events, choices go out as actions, time is an argument. Standard library
only.
"""
