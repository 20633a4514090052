from tests.open_folder import jobs_folder

__all__ = ["jobs_folder"]
