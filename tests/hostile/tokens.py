"""Tokens and running jobs for attack stories."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.hostile.control_plane import ControlPlane, until
from tests.web.kit import WAITS


def made(plane: ControlPlane, role: str = "member", team: str = "", name: str = "") -> tuple[str, str]:
    """Id and secret of a new token."""
    body = {"role": role, "team": team} | ({"name": name} if name else {})
    answer = plane.client().post("/v1/tokens", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], answer.json()["secret"]


@contextmanager
def running_job(plane: ControlPlane, secret: str | None = None) -> Iterator[str]:
    """A job of this token that runs; ended afterwards, since jobs outlive their control plane."""
    owner = plane.client(secret)
    job = plane.submit(*WAITS, client=owner)
    try:
        until(lambda: owner.get(f"/v1/jobs/{job}/log").text)
        yield job
    finally:
        plane.client().post(f"/v1/jobs/{job}/cancel")
        plane.ended(job)
