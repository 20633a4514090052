"""The API's shapes with everything filled in that a test does not care about."""

from typing import Any

from penstock.web import schemas

NOW = 1_794_832_200_000  #: 12:30 of a Monday in November


def offer(
    name: str = "lab/owned", term: str = "owned", width: int = 8, count: int | None = 2, **more: Any
) -> schemas.Offer:
    size = schemas.NodeSize(
        gpus=width, count=count, name="", price_per_hour=width * 2_000_000, most_per_hour=None, marginal_per_hour=0
    )
    filled: dict[str, Any] = {
        "gpu_model": "A100", "mig_profile": "", "sold_by": "node", "start_ms": 0, "loss_ppm_per_hour": 0,
        "guarantee": "hard", "sizes": [size], "gpus": None if count is None else width * count, "busy": 0,
        "starting": 0, "idle": 0, "lost": 0, "free": [], "closed_until_at": None,
    }  # fmt: skip
    return schemas.Offer(id=name, site=name.partition("/")[0], term=term, **(filled | more))


def sites(*offers: schemas.Offer, reachable: bool = True) -> schemas.Sites:
    made = [
        schemas.Site(
            id=name, location="", operator="", law="", front_door=False, reachable=reachable, says="",
            offers=[row for row in offers if row.site == name],
        )
        for name in dict.fromkeys(row.site for row in offers)
    ]  # fmt: skip
    return schemas.Sites(at=NOW, currency="USD", sites=made)


def job(**more: Any) -> schemas.JobDetail:
    filled: dict[str, Any] = {
        "id": "j1", "number": 1, "team": "vision", "name": "train", "user": "u", "project": "", "job_class": "training",
        "priority": 0, "gpus": 1, "state": "queued", "preempted": False, "attempt": "", "offer": "",
        "submitted_at": NOW - 3_600_000,
        "started_at": None, "ended_at": None, "kept_ms": 0, "attempts": 0, "moves": 0, "losses": 0, "spent": 0,
        "held": 0, "until_at": None, "short_of": "", "because": None, "decided_at": None, "tries": [], "waits": "",
        "command": [], "folder": "", "image": "", "variables": [],
    }  # fmt: skip
    return schemas.JobDetail(**(filled | more))


def attempt(offer: str, promised_at: int, **more: Any) -> schemas.Attempt:
    filled: dict[str, Any] = {
        "id": "j1.1", "number": 1, "job": "j1", "site": offer.partition("/")[0], "width": 1, "state": "stopped",
        "started_at": promised_at, "ended_at": NOW, "resume_ms": 0, "kept_ms": 0, "spent": 0, "held": 0,
        "deadline_at": None, "because": None,
    }  # fmt: skip
    return schemas.Attempt(offer=offer, promised_at=promised_at, **(filled | more))


def because(kind: str, says: str = "Because.", **numbers: Any) -> schemas.Reason:
    return schemas.Reason(kind=kind, numbers=numbers, says=says)


def event(kind: str, says: str, job: str = "j1", number: int = 7, **fields: Any) -> schemas.Event:
    return schemas.Event(id=f"{number}.0", at=NOW, kind=kind, job=job, team="vision", says=says, event=fields)
