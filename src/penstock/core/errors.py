"""The one error a person may cause: input that cannot be used. Everything else that is raised is a bug."""


class BadInput(ValueError):
    """One sentence that names file, row and field where there are any, and says what to do. Exit code 2."""
