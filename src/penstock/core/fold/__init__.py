"""The state, and what each event does to it. Replay and the live engine fold alike; nothing is decided here."""
