"""What to do: facts come in as events, choices go out as actions, time is an argument. Standard library only."""
