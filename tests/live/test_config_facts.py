"""What a start makes of the sites file's caps: it lowers them by itself, and raises none unless a person accepts it."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.engine import Engine
from penstock.core.model import events as e
from penstock.core.units import MICRO, Money
from penstock.live.config_facts import Cap, news, raised_caps

AMOUNTS = st.none() | st.integers(0, 3).map(lambda units: units * MICRO)
CAPS = st.tuples(AMOUNTS, AMOUNTS)


class Penstock:
    """Starts, and what a person does in between. None in the file: it does not name the scope."""

    def __init__(self) -> None:
        self.engine, self.at = Engine(), 0

    @property
    def in_force(self) -> Cap:
        ledger = self.engine.state.ledger
        return ledger.caps.get("org"), ledger.rate_caps.get("org")

    def start(self, file: Cap | None, accept: bool = False) -> list[str]:
        caps = () if file in (None, (None, None)) else (e.CapSet(0, "org", *file, from_file=True),)
        self.hear(*news(self.engine.state, caps, (), accept_raised_caps=accept))
        return [raised.says for raised in raised_caps(self.engine.state, caps).values()]

    def sets(self, cap: Cap) -> None:
        self.hear(e.CapSet(0, "org", *cap))

    def hear(self, *facts: e.Fact) -> None:
        self.at += 1
        for fact in facts:
            assert isinstance(fact, e.CapSet)
            self.engine.handle(e.CapSet(self.at, fact.scope, fact.per_period, fact.per_hour, from_file=fact.from_file))


def at_most(amount: Money | None, bound: Money | None) -> bool:
    return bound is None or (amount is not None and amount <= bound)


@given(st.lists(st.tuples(st.sampled_from(["file", "person"]), st.none() | CAPS), max_size=8))
def test_no_start_raises_a_cap_and_each_raise_is_named_until_somebody_accepts_it(
    history: list[tuple[str, Cap | None]],
) -> None:
    penstock = Penstock()
    for who, cap in history:
        before = penstock.in_force
        if who == "person":
            penstock.sets(cap or (None, None))
            continue
        named = penstock.start(cap)
        after, file = penstock.in_force, cap or (None, None)
        assert all(map(at_most, after, before))
        kept = penstock.engine.state.ledger.file_caps.get("org", (None, None))
        assert bool(named) == (kept != file)
        penstock.start(cap)
        assert penstock.in_force == after  # the same file again changes nothing
    last = history[-1][1] if history and history[-1][0] == "file" else (MICRO, None)
    named = penstock.start(last, accept=True)
    assert named == []


def test_an_older_journal_has_no_note_of_the_file_and_its_cap_is_not_raised() -> None:
    penstock = Penstock()
    penstock.sets((0, None))
    assert len(penstock.start((5 * MICRO, None))) == 1
    assert penstock.in_force == (0, None)


def test_a_cap_that_a_person_raised_above_the_files_stands() -> None:
    penstock = Penstock()
    penstock.start((MICRO, None))
    penstock.sets((3 * MICRO, None))
    assert (penstock.start((MICRO, None)), penstock.in_force) == ([], (3 * MICRO, None))
