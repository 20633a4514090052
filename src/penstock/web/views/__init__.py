"""The page people look at: templates, static files, and pure functions from the API's own shapes to what is shown.

Called by `web.routes.pages`. Nothing here asks anybody anything; whoever may not see a thing is never handed it.
"""
