"""View models of the pages: templates, static files, and pure functions from API shapes to what is shown.
`web.routes.pages` calls them.

Nothing here fetches data, and a caller gets only data that it may see.
"""
