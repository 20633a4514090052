"""The simulated world around the live engine, and the same world behind the drivers' protocol."""
