"""The routes, one file per subject. Each converts, calls the plane or the reader, and answers."""
