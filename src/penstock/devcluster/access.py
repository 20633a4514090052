"""Access to a dev cluster: kubeconfig files, and a small HTTPS client for the test bed itself.

Everything else uses kubectl, or the client under test. `testbed` and `cluster` call it.
"""

import base64
import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class ClusterAccess(NamedTuple):
    name: str
    url: str
    token: str
    ca: Path
    user: str = "admin"


class ApiAnswer(NamedTuple):
    code: int
    body: dict[str, Any]


class AdminApi:
    """One connection per request, closed at once: nothing has to be cleaned up afterwards."""

    def __init__(self, access: ClusterAccess) -> None:
        self.access = access

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 30) -> ApiAnswer:
        (answer,) = self.ask_all(method, path, [body], timeout_s)
        return answer

    def ask_all(
        self, method: str, path: str, bodies: Sequence[Mapping[str, Any] | None], timeout_s: float = 30
    ) -> list[ApiAnswer]:
        """The same request with each body, over one connection: a thousand nodes are created this way."""
        headers = {"Authorization": f"Bearer {self.access.token}", "Content-Type": _kind(method)}
        trust = ssl.create_default_context(cafile=str(self.access.ca))
        where = urlsplit(self.access.url).netloc
        answers = []
        with closing(http.client.HTTPSConnection(where, context=trust, timeout=timeout_s)) as connection:
            for body in bodies:
                connection.request(method, path, json.dumps(body) if body is not None else None, headers)
                answer = connection.getresponse()
                answers.append(ApiAnswer(answer.status, _parsed(answer.read())))
        return answers


def _kind(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        return {"text": text.decode(errors="replace")}
    return body if isinstance(body, dict) else {}


def write_kubeconfig(path: Path, clusters: Sequence[ClusterAccess]) -> Path:
    """One file with a context per cluster, the first one current. JSON is YAML, and every client reads it."""
    several = len(clusters) > 1
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": clusters[0].name,
        "clusters": [
            {
                "name": cluster.name,
                "cluster": {"server": cluster.url, "certificate-authority-data": _inline(cluster.ca)},
            }
            for cluster in clusters
        ],
        "users": [{"name": _user(cluster, several), "user": {"token": cluster.token}} for cluster in clusters],
        "contexts": [
            {"name": cluster.name, "context": {"cluster": cluster.name, "user": _user(cluster, several)}}
            for cluster in clusters
        ],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(kubeconfig, indent=2))
    return path


def _inline(ca: Path) -> str:
    """The certificate itself, not its path, so that the file works anywhere, also in a Secret."""
    return base64.b64encode(ca.read_bytes()).decode()


def _user(access: ClusterAccess, several: bool) -> str:
    """User names are shared by the whole kubeconfig, and each cluster has its own token."""
    return f"{access.user}@{access.name}" if several else access.user
