"""What history teaches, against the definition in words."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.fold.runtimes import Recent
from penstock.core.model.types import JobSpec
from penstock.core.units import HOUR

ENDED = st.lists(st.tuples(st.sampled_from([1, 2, 8]), st.integers(0, 10**7)), max_size=30)


def expected(ended: list[tuple[int, int]], width: int) -> int:
    """The mean of the last 200 of the same width; before five of those, of all; before any, an hour."""
    same = [run for gpus, run in ended if gpus == width][-200:]
    if len(same) >= 5:
        return sum(same) // len(same)
    return sum(run for _, run in ended) // len(ended) if ended else HOUR


@given(ENDED, st.integers(1, 60), st.sampled_from([1, 2, 8, 16]))
def test_recent_is_what_its_words_say(ended: list[tuple[int, int]], times: int, width: int) -> None:
    history = Recent()
    many = ended * times  # up to 1,800, so that the oldest fall out
    for gpus, run in many:
        history.learn(JobSpec(gpus), run)
    assert history.expect(JobSpec(width)) == expected(many, width)


def test_what_a_person_expects_goes_before_history() -> None:
    history = Recent()
    history.learn(JobSpec(1), 5)
    assert history.expect(JobSpec(1, expected_run_ms=0)) == 0
    assert history.expect(JobSpec(1)) == 5
