"""Events to JSON and back: every kind, every field, and nothing guessed."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import BadInput
from penstock.core.model import events as e
from penstock.core.model import reasons as r
from penstock.core.model.types import JobSpec, Origin
from penstock.journal import codec
from tests.core.histories import History, Life, histories
from tests.core.samples import events, made


@settings(max_examples=400)
@given(st.lists(events(), max_size=3))
def test_events_come_back_as_they_were(some: list[e.Event]) -> None:
    decoded = codec.decode(codec.encode(some))
    assert decoded == tuple(some)
    assert repr(decoded) == repr(tuple(some))  # also tuples inside tuples, and numbers that are not booleans


@pytest.mark.parametrize("kind", e.FACTS + e.PROMISES, ids=lambda kind: kind.__name__)
def test_each_kind_comes_back_as_it_was(kind: type) -> None:
    @settings(max_examples=8)
    @given(made(kind))
    def round_trip(event: e.Event) -> None:
        assert codec.decode(codec.encode((event,))) == (event,)

    round_trip()


def test_a_job_is_written_without_what_is_usual() -> None:
    event = e.JobSubmitted(5, 0, "a", JobSpec(8, team="vision"))
    (((kind, body)),) = msgspec.json.decode(codec.encode((event,)))
    assert (kind, body) == ("JobSubmitted", {"at": 5, "number": 0, "job": "a", "spec": {"gpus": 8, "team": "vision"}})


def test_a_home_job_of_an_older_version_is_read_with_its_origin_apart_from_its_user() -> None:
    """Its user was `SITE:UID`, so that nobody was known to have applied it. Jobs live on through an upgrade."""

    def read(spec: str) -> JobSpec:
        (event,) = codec.decode(f'[["JobSubmitted",{{"at":5,"number":0,"job":"a","spec":{spec}}}]]'.encode())
        assert isinstance(event, e.JobSubmitted)
        return event.spec

    old = read('{"gpus":8,"team":"vision","user":"lab:u-1","home":"lab"}')
    assert old == JobSpec(8, team="vision", user="vision", home="lab", origin=Origin("lab", "u-1"))
    unnamed = read('{"gpus":8,"user":"lab:u-1","home":"lab"}')
    assert (unnamed.team, unnamed.user, unnamed.origin) == ("default", "default", Origin("lab", "u-1"))
    for spec in (JobSpec(8, user="lab:u-1"), JobSpec(8, user="ada", home="lab"), old):
        (again,) = codec.decode(codec.encode((e.JobSubmitted(5, 0, "a", spec),)))
        assert again.spec == spec


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="an event 'NodeTeleported' that this version does not know"):
        codec.decode(b'[["NodeTeleported", {"at": 1}]]')


def test_equal_events_are_equal_bytes() -> None:
    assert codec.encode((e.Woke(1),)) == codec.encode([e.Woke(1)]) == b'[["Woke",{"at":1}]]'


def test_an_event_of_an_older_version_is_read_as_it_would_be_written_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap of version 1 called its amount `amount`, and one of version 2 had no rate; this is version 3."""
    monkeypatch.setattr(codec, "VERSION", 3)
    monkeypatch.setitem(
        codec.UPCAST, ("CapSet", 1), lambda old: {"scope": old["scope"], "at": old["at"], "per_period": old["amount"]}
    )
    monkeypatch.setitem(codec.UPCAST, ("CapSet", 2), lambda old: {**old, "per_hour": 7})
    first, second, third = (
        b'{"at":1,"scope":"org","amount":5}',
        b'{"at":1,"scope":"org","per_period":5}',
        b'{"at":1,"scope":"org","per_period":5,"per_hour":7}',
    )
    for version, body in ((1, first), (2, second), (3, third)):
        row = b'[["Woke",{"at":1}],["CapSet",' + body + b"]]"
        assert codec.decode(row, version) == (e.Woke(1), e.CapSet(1, "org", 5, 7))


@settings(max_examples=25)
@given(histories())
def test_a_wait_of_version_1_means_what_it_meant(history: History) -> None:
    """Version 1 had no scope, patience and forecast beside the reason: they are read from it."""
    life = Life(history)
    life.run()
    waits = [event for step in life.steps for event in step.outputs if isinstance(event, e.WaitPromised)]
    for wait in waits:
        ((kind, body),) = msgspec.json.decode(codec.encode((wait,)))
        old = {name: body[name] for name in ("at", "job", "until_at", "because")}
        assert codec.decode(msgspec.json.encode([(kind, old)]), version=1) == (wait,)


def test_a_wait_is_written_without_what_is_usual() -> None:
    wait = e.WaitPromised(5, "a", 9, r.PlacementsPaused())
    ((_, body),) = msgspec.json.decode(codec.encode((wait,)))
    assert body == {"at": 5, "job": "a", "until_at": 9, "because": {"kind": "PlacementsPaused"}}
    short = e.WaitPromised(5, "a", 9, r.PlacementsPaused(), scope="org", patience_ms=0, about_ms=3, worst_ms=4)
    ((_, body),) = msgspec.json.decode(codec.encode((short,)))
    assert (body["scope"], body["patience_ms"], body["about_ms"], body["worst_ms"]) == ("org", 0, 3, 4)
