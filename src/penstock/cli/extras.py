"""Packages that only some commands need, and the extra of ours that installs each."""

from typing import Final

from penstock.core.errors import BadInput

#: A module's first name, and where packages share that, as Google's do, its second -> the extra (pyproject.toml).
EXTRAS: Final = {
    "aiohttp": "kubernetes",
    "azure": "aks",
    "boto3": "eks",
    "botocore": "eks",
    "cel_expr_python": "policy",
    "google.auth": "gke",
    "lightkube": "kubernetes",
    "numpy": "compare",
    "obstore": "s3",
    "psycopg": "postgres",
    "pynvml": "gpu",
    "requests": "gke",
    "resvg_py": "plots",
    "rich": "terminal",
}


def not_installed(error: ModuleNotFoundError) -> BadInput | None:
    """What a person should install; None where a module of ours or of no extra is missing, which is a bug."""
    parts = (error.name or "").split(".")
    extra = EXTRAS.get(parts[0]) or EXTRAS.get(".".join(parts[:2]))
    if extra is None:
        return None
    return BadInput(
        f"This command needs the package {parts[0]}, which is not installed: pip install 'penstock[{extra}]'."
    )
