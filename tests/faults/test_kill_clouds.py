"""What the witness of the kill bench of rented nodes finds. `python -m bench.kill_clouds` is the bench."""

import re
from typing import Any

import pytest

from bench import cloud_mistakes, kill_clouds
from bench.cloud_proxy import Snapshots
from bench.cloud_witness import (
    SWEPT_S,
    Books,
    CloudWitness,
    Rented,
    _adopted,
    _ends,
    _marks,
    _misplaced,
    _rented,
    _twice,
    _vanished,
)
from bench.kube_witness import PodLife
from penstock.core.fold.ledger import Lease
from penstock.core.model.types import Hold, Part, Terms
from penstock.devcluster import karpenter, programs
from penstock.kube import annotations
from tests import postgres
from tests.conftest import ROOT
from tests.conftest import Part as Wanting

NODE = "j1.1/n0"


def claim(uid: str = "u1", node: str = NODE, kind: str = "claim", made_s: int = 100, **more: Any) -> Rented:
    said: dict[str, Any] = {"name": f"penstock-{uid}", "ends_at": (made_s + 30) * 1000, "pool": "", **more}
    return Rented(uid=uid, kind=kind, node=node, made_at=made_s * 1000, **said)


def lease(deadline_s: int = 130) -> Lease:
    terms = Terms(
        price_per_hour=1, most_per_hour=1, fees=0, egress=0, step_ms=1, minimum_ms=0, grace_ms=0, kill_ms=20_000,
        lease_max_ms=30_000,
    )  # fmt: skip
    deadline_at = deadline_s * 1000
    return Lease(Hold(NODE, (), terms, 100_000, deadline_at, deadline_at, (Part("month 1", 1),)))


def books(*, held: bool = False, known: bool = True, settled_s: int = 0) -> Books:
    names = frozenset([NODE])
    return Books(
        {NODE: lease()} if held else {}, names if known else frozenset(), {NODE: settled_s * 1000} if settled_s else {}
    )


def unpaid(before: Books, after: Books, now_s: float = 0, witness: CloudWitness | None = None) -> list[str]:
    return [words for _, words in (witness or CloudWitness())._unpaid([claim()], before, after, now_s)]


def test_what_is_there_before_it_is_held_or_after_it_is_settled_is_found() -> None:
    never, closed = books(known=False), books(settled_s=110)
    assert unpaid(never, never) == [f"claim penstock-u1 of {NODE} is there, and was never held for"]
    assert unpaid(closed, closed) == [f"claim penstock-u1 of {NODE} is there, and was settled before it was gone"]


def test_what_an_order_of_journal_and_cluster_explains_is_not() -> None:
    never, held, closed = books(known=False), books(held=True), books(settled_s=110)
    assert unpaid(held, held) == []
    assert unpaid(never, held) == []  # held, then asked for
    assert unpaid(held, closed) == []  # gone, then settled
    assert unpaid(never, closed) == []


def test_an_orphan_that_the_bench_made_may_be_there_until_it_is_swept_and_nothing_else_may() -> None:
    witness, never, late = CloudWitness(), books(known=False), books(settled_s=90)
    assert unpaid(late, late) == [f"claim penstock-u1 of {NODE} is there, and was settled before it was gone"]
    witness.planted["penstock-u1"] = 0.0
    assert unpaid(never, never, now_s=5, witness=witness) == []
    assert unpaid(never, never, now_s=SWEPT_S + 4, witness=witness) == []
    found = unpaid(never, never, now_s=SWEPT_S + 6, witness=witness)
    assert found == [f"claim penstock-u1 of {NODE} is there, and was not swept"]


def test_a_node_that_is_rented_twice_is_found_and_its_claim_and_node_are_one() -> None:
    assert list(_twice([claim(), claim("u2", kind="Node")])) == []
    found = list(_twice([claim(), claim("u2")]))
    assert found == [("doubled", f"{NODE} is rented twice: as claim penstock-u1 and penstock-u2")]


def test_a_claim_of_somebody_else_that_is_told_to_go_was_adopted() -> None:
    stays, goes = {"metadata": {"name": "a"}}, {"metadata": {"name": "b", "deletionTimestamp": "1970-01-01T00:01:40Z"}}
    assert list(_adopted(["a"], [stays, goes])) == []
    found = [words for _, words in _adopted(["a", "b", "c"], [stays, goes])]
    assert found == [f"claim {name} is somebody else's, and was adopted: it was told to go" for name in "bc"]


def test_an_end_later_than_what_is_held_or_sooner_than_what_is_counted_on_is_found() -> None:
    held = books(held=True)
    assert list(_ends([claim()], held)) == []
    assert [kind for kind, _ in _ends([claim(ends_at=None)], held)] == ["over_cap"]
    assert [kind for kind, _ in _ends([claim(ends_at=150_000)], held)] == ["over_cap"]
    assert [kind for kind, _ in _ends([claim(ends_at=120_000)], held)] == ["lost"]
    assert list(_ends([claim(ends_at=120_000, movable=True)], held)) == []  # held for, and then moved
    assert [kind for kind, _ in _ends([claim(ends_at=150_000, movable=True)], held)] == ["over_cap"]


def test_a_node_that_is_kept_warm_stays_until_its_end_unless_the_bench_takes_it() -> None:
    warm = Books({NODE: lease(deadline_s=130)}, frozenset([NODE]), {}, warm=frozenset([NODE]))
    taken = Books({}, frozenset([NODE]), {})
    assert list(_vanished([claim()], warm, warm, (), 110_000)) == []
    found = [("lost", f"{NODE} is kept warm and paid for, and its claim is gone")]
    assert list(_vanished([], warm, warm, (), 110_000)) == found
    assert list(_vanished([claim(kind="Node")], warm, warm, (), 110_000)) == found
    assert list(_vanished([], warm, taken, (), 110_000)) == []  # a job took it meanwhile, or it was given back
    assert list(_vanished([], warm, warm, (NODE,), 110_000)) == []
    assert list(_vanished([], warm, warm, (), 128_000)) == []


def test_a_pod_on_another_node_than_was_promised_is_found() -> None:
    pods = [PodLife("a", "j1.1", node="node-1"), PodLife("a", "j1.2", node="node-2"), PodLife("b", "j2.1")]
    names, promised = {"node-1": NODE, "node-2": NODE}, {"j1.1": frozenset([NODE]), "j1.2": frozenset(["j1.2/n0"])}
    found = [("lost", f"a pod of j1.2 is on {NODE}, and it was promised j1.2/n0")]
    assert list(_misplaced(pods, names, promised)) == found


def test_a_claim_of_ours_in_a_node_pool_is_found() -> None:
    assert [kind for kind, _ in _marks([claim(), claim("u2", pool="bench")])] == ["lost"]


def test_a_claim_and_its_node_are_read_by_their_marks() -> None:
    meta = {
        "name": "penstock-1",
        "uid": "u1",
        "creationTimestamp": "1970-01-01T00:01:40Z",
        "labels": {annotations.NODE: "penstock-1"},
        "annotations": {annotations.NODE_ID: NODE},
    }
    assert _rented("claim", {"metadata": meta, "spec": {"expireAfter": "1m30s"}}) == claim(
        name="penstock-1", ends_at=190_000
    )
    assert _rented("Node", {"metadata": meta, "spec": {}}) == claim(kind="Node", name="penstock-1", ends_at=None)
    meta["annotations"] = {annotations.NODE_ID: NODE, annotations.ENDS_AT: "1970-01-01T00:03:10Z"}
    deployment = {"metadata": meta, "spec": {"replicas": 1}}  # a watchman ends it
    assert _rented("claim", deployment) == claim(name="penstock-1", ends_at=190_000, movable=True)


@pytest.mark.slow
def test_a_seeded_mistake_about_rented_nodes_is_found() -> None:
    """One that is found soon; `--mutate` has them all."""
    if not programs.are_available():
        pytest.skip(Wanting.KUBERNETES)
    if not karpenter.is_available():
        pytest.skip(Wanting.KARPENTER)
    postgres.found_or_skip()
    assert kill_clouds.run(3, 1, "in_a_node_pool", to_the_end=False).words


def test_every_mistake_says_what_it_is() -> None:
    assert len(cloud_mistakes.MISTAKES) >= 9
    assert all(mistake.__doc__ for mistake in cloud_mistakes.MISTAKES.values())


def test_every_kind_of_mistake_about_rented_nodes_is_found_by_a_bench_or_by_a_test() -> None:
    """The table in docs/faults.md: what it names is there, and every seeded mistake is in it."""
    part = (ROOT / "docs/faults.md").read_text().partition("### Thirteen mistakes")[2].partition("\n#")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 13
    assert all(len(row) == 2 for row in rows)
    seeded = set()
    for _, finders in rows:
        for finder in re.findall("`([^`]+)`", finders):
            path, _, name = finder.partition("::")
            if name:
                assert f"def {name}(" in (ROOT / path).read_text(), finder
            else:
                seeded.add(finder)
    assert seeded == set(cloud_mistakes.MISTAKES)


def test_a_late_list_is_as_it_was_then() -> None:
    snapshots = Snapshots()
    assert snapshots.at(100) is None
    for instant, body in ((1.0, b"a"), (2.0, b"b"), (9.0, b"c")):
        snapshots.add(instant, body, keep_s=5)
    shown = [snapshots.at(instant) for instant in (1.5, 2.0, 8.9, 9.0)]
    assert shown == [(2.0, b"b"), (2.0, b"b"), (2.0, b"b"), (9.0, b"c")]  # "a" is too old
