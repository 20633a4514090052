"""The routes, a file for each subject. Each converts, asks the plane or the journal, and answers."""
