"""Drivers run attempts at a site, one driver for each kind of site. `driver.py` is the protocol; `tests/contract` tests
every driver.
"""
