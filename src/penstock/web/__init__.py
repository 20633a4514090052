"""The HTTP API under `/v1` and the web pages. `app.build` makes the app for `wiring`.

Routes convert and pass on: `live.plane` decides, the journal's reader answers queries.
"""
