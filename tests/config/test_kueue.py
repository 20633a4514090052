"""Kueues and the sites that they start Workloads at, as a sites file has them."""

import json
from typing import Any

import pytest

from penstock.config import SitesFile, parse_sites
from penstock.core.decide.rules import BuiltInRules, Candidate
from penstock.core.errors import BadFile
from penstock.core.model.types import JobSpec, Policy
from penstock.core.units import MINUTE
from penstock.kube.access import Access
from penstock.kube.kueue_manager import KueueManager, KueueSite, need_of
from penstock.policy.file import parse_policy

OWNED = {"name": "quota", "term": "owned", "gpu": "A100", "gpus_per_node": 8, "nodes": 2}
RENTED = {"name": "a100", "gpu": "A100", "gpus_per_node": 8, "price": {"list": 2}}
HERE = {"name": "here", "driver": "kueue", "kueue": {"manager": "lab"}, "offers": [OWNED]}
EAST = {"name": "east", "kueue": {"manager": "lab", "cluster": "worker-east"}, "offers": [RENTED]}
PLAIN = {"name": "cloud", "driver": "rehearsal", "offers": [RENTED]}
FILE: dict[str, Any] = {"kueue": [{"name": "lab", "kubeconfig": "/lab"}], "sites": [HERE, EAST, PLAIN]}


def parsed(**more: Any) -> SitesFile:
    return parse_sites(json.dumps({**FILE, **more}).encode(), "sites.yaml")


def test_a_kueue_and_its_workers_are_read() -> None:
    file = parsed()
    assert file.kueue == (KueueManager("lab", Access("/lab")),)
    assert dict(file.queues) == {
        "here": KueueSite("lab"),
        "east": KueueSite("lab", "worker-east", "multikueue", 15 * MINUTE),
    }
    offers = {offer.id: offer for site in file.sites for offer in site.offers}
    rented = offers["east/a100"]
    assert (rented.sold_by, rented.renewable, rented.guarantee) == ("attempt", False, "max_run_time")
    assert offers["here/quota"].renewable


@pytest.mark.parametrize(
    ("needs", "allowed"),
    [
        ((), {"cloud"}),
        ((need_of("lab", "multikueue"),), {"east", "cloud"}),
        ((need_of("lab", ""),), {"here", "cloud"}),
        ((need_of("other", "multikueue"),), {"cloud"}),
    ],
    ids=["an ordinary job", "through MultiKueue", "in the manager's cluster", "of another Kueue"],
)
def test_a_workload_goes_only_where_its_kueue_starts_it_and_nothing_else_goes_there(
    needs: tuple[str, ...], allowed: set[str]
) -> None:
    asked = [
        (site.id, Candidate(JobSpec(8, needs=needs), site, offer, (), Policy("test")))
        for site in parsed().sites
        for offer in site.offers
    ]
    assert {site for site, candidate in asked if BuiltInRules().verdict(candidate).allowed} == allowed


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kueue": []}, "there is no 'kueue' at the top of the file named 'lab'"),
        ({"kueue": [{"name": "here"}, {"name": "lab"}]}, "'here' is a site already"),
        ({"kueue": [{"name": "lab"}, {"name": "lab"}]}, "'lab' is here twice"),
        ({"kueue": [{"name": "lab", "check": "No Name"}]}, "'No Name' is not a name in Kubernetes"),
        ({"kueue": [{"name": "lab", "namespaces": ["A.b"]}]}, "'A.b' is not a namespace"),
        ({"sites": [HERE, {**HERE, "name": "there"}]}, "'there' and 'here' are the same cluster of Kueue lab"),
        ({"sites": [{**HERE, "kueue": None}]}, "the key 'kueue' is missing"),
        ({"sites": [{**HERE, "driver": "local"}]}, "this is for sites with 'driver: kueue'"),
        ({"sites": [{**HERE, "front_door": True}]}, "Workloads come in by 'kueue'"),
        ({"sites": [{**HERE, "kueue": {"manager": "lab", "check": "mk"}}]}, "MultiKueue's check is for a 'cluster'"),
        ({"sites": [{**EAST, "offers": [{**RENTED, "sold_by": "node"}]}]}, "Kueue starts whole jobs"),
    ],
)
def test_what_makes_no_sense_is_said(more: dict[str, Any], words: str) -> None:
    with pytest.raises(BadFile, match=words.replace("(", r"\(")):
        parsed(**more)


def test_a_policy_file_may_book_a_kueues_namespace_to_a_team() -> None:
    """`KUEUE/NAMESPACE`, as docs/kueue.md has it, was refused: only sites with a front door were known."""
    text = b"{version: 1, teams: {vision: {namespaces: [%s/vision]}}}"
    policy = parse_policy(text % b"lab", "policy.yaml", parsed())
    assert [team.namespaces for team in policy.teams] == [("lab/vision",)]
    with pytest.raises(BadFile, match=r"no Kueue, named 'lob'; .*lab"):
        parse_policy(text % b"lob", "policy.yaml", parsed())
