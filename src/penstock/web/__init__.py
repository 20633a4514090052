"""The HTTP API under `/v1`: what people and programs may ask of a running Penstock. `app.build` makes it for `wiring`.

Routes convert and pass on; what to do is decided behind `live.plane`, what to show is read from the journal.
"""
