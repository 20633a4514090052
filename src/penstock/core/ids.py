"""How ids are made and read: each begins with the id of what it belongs to.

    sweep               what was submitted; of an array, all of it
    sweep/3             a job: the fourth member of the array
    sweep/3.2           its second attempt
    sweep/3.2/n0        the first node that was rented for that attempt
    lab/owned           an offer of the site `lab`
    lab/owned/5         a node of that offer, where it is a standing one
    cloud/spot/w7       a node of an offer that was rented ahead, for no attempt: the seventh of all
    burst/c3            a transient cluster of the site `burst`: the third of all

A hold has the id of what it pays for: an attempt, a rented node or a transient cluster.
"""

import re
from typing import Final

_ATTEMPT: Final = re.compile(r"(?P<attempt>(?P<job>.+)\.(?P<number>[0-9]{1,9}))(?P<node>/n[0-9]+)?", re.DOTALL)
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,8}")
_AHEAD: Final = re.compile(".+/w[0-9]+", re.DOTALL)
_CLUSTER: Final = re.compile("[^/]+/c[0-9]+", re.DOTALL)


def members(job: str, count: int) -> tuple[str, ...]:
    """The jobs of one submission: itself, or the members of an array."""
    return (job,) if count == 1 else tuple([f"{job}/{k}" for k in range(count)])


def array_of(job: str) -> str:
    """The array that a member belongs to; empty: none."""
    return job.rpartition("/")[0]


def attempt_id(job: str, number: int) -> str:
    """Of a job's first, second, third attempt."""
    return f"{job}.{number}"


def node_id(attempt: str, k: int) -> str:
    """Of the nodes that are rented for an attempt."""
    return f"{attempt}/n{k}"


def ahead_node_id(offer: str, number: int) -> str:
    """Of a node that is rented before a job asks for it."""
    return f"{offer}/w{number}"


def is_ahead(node: str) -> bool:
    """True for a node that was rented before a job asked for it. No attempt's id, and no node's of one, ends so."""
    return _AHEAD.fullmatch(node) is not None


def cluster_id(site: str, number: int) -> str:
    """Of a transient cluster."""
    return f"{site}/c{number}"


def is_cluster(node: str) -> bool:
    """True for a transient cluster. No attempt's id, and no node's of one, ends so."""
    return _CLUSTER.fullmatch(node) is not None


def is_node(thing: str) -> bool:
    """True for a rented node, and for a transient cluster, which is rented as one."""
    match = _ATTEMPT.fullmatch(thing)
    return is_ahead(thing) or is_cluster(thing) if match is None else match["node"] is not None


def attempt_of(thing: str) -> str:
    """The attempt that an attempt's, a rented node's or a hold's id begins with; empty: it is none of these."""
    match = _ATTEMPT.fullmatch(thing)
    return match["attempt"] if match else ""


def job_of(thing: str) -> str:
    """The job that an attempt's, a rented node's or a hold's id begins with; empty: it is none of these."""
    match = _ATTEMPT.fullmatch(thing)
    return match["job"] if match else ""


def attempt_number(attempt: str) -> int:
    """Which of its job's attempts it is; 0: it is none."""
    match = _ATTEMPT.fullmatch(attempt)
    return int(match["number"]) if match else 0


def job_concerned(event: object) -> str:
    """The job that an event is about: it names the job itself, or an attempt, a node or a hold of it; empty: no job."""
    job = getattr(event, "job", "")
    if job:
        return str(job)
    for name in ("attempt", "node", "hold", "thing"):
        thing = getattr(event, name, "")
        if thing:
            return job_of(str(thing))
    return ""


def site_of(offer: str) -> str:
    """The site that an offer's id begins with."""
    return offer.partition("/")[0]


def standing_node(node: str) -> tuple[str, int | None]:
    """The offer and the number of a standing node; None: it has none."""
    offer, _, number = node.rpartition("/")
    return offer, int(number) if _NUMBER.fullmatch(number) else None
