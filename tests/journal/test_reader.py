"""What a reader asks the database."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.reader import padded


@given(st.lists(st.integers(), max_size=600))
def test_rows_are_asked_for_by_few_statements(numbers: list[int]) -> None:
    """Each page of events had as many numbers as it liked, and a connection kept a statement for each count."""
    asked = padded(numbers)
    assert asked[: len(numbers)] == numbers
    assert set(asked) == set(numbers)
    assert len(asked) in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    assert len(asked) < max(2, 2 * len(numbers))
