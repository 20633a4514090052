"""The simulated world around the live engine, and that world behind the drivers' protocol."""
