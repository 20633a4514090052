"""Make it so: one driver per kind of site. `driver.py` is the protocol; every driver passes `tests/contract`."""
