"""PostgreSQL's primary is killed under a real `penstock up`, its standby is promoted, and Penstock is restarted."""

import pytest

from bench.failover import LAG_STEPS, MISSING, Round, play
from tests import postgres

pytestmark = pytest.mark.slow


def played(kind: str) -> Round:
    return play(postgres.found_or_skip(), kind)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("synchronous", "Synchronous: a commit waits for *; a failover to it loses nothing."),
        ("keeps up", "Asynchronous: a failover can lose what a standby has not got (1 standby connected)."),
    ],
)
def test_a_standby_that_has_all_of_it_takes_over_and_nothing_is_lost_in_silence(kind: str, says: str) -> None:
    """One that only keeps up may lack the last moment; then that is said, and is no silence."""
    done = played(kind)
    assert says in done.durability
    assert (done.lost_in_silence, done.wrong) == (0, [])
    assert done.lost == 0 or kind != "synchronous"


def test_a_standby_that_was_behind_is_refused_now_and_after_a_restart_until_a_person_lets_it_go_on() -> None:
    """Between 99 and 751 accepted submissions were lost without a word in ten of ten failovers, and the next start was
    ready at once; new jobs then got the ids, and the running programs, of those that were lost."""
    done = played("lags")
    assert done.lost >= LAG_STEPS
    assert not done.was_ready
    for says in (done.says, done.again):
        assert all(word in says for word in MISSING), says
        assert "accepted job" in says
    assert "->" in done.restored
    assert (done.lost_in_silence, done.wrong) == (0, [])
