"""Numbers of sequences equal those of single steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.errors import SequenceLimitExceeded
from foreshore.sequence import Position, Sequence, left, numbers


def one(sequence: Sequence, at: Position) -> Position | None:
    """Return the position after the next number, None if there is none."""
    if not at.called:
        return Position(at.last, called=True)
    last = at.last + sequence.increment
    if sequence.minimum <= last <= sequence.maximum:
        return Position(last, called=True)
    if not sequence.cycle:
        return None
    return Position(sequence.minimum if sequence.increment > 0 else sequence.maximum, called=True)


@given(
    minimum=st.integers(-6, 3),
    width=st.integers(1, 9),
    increment=st.integers(-4, 4).filter(bool),
    cycle=st.booleans(),
    called=st.booleans(),
    offset=st.integers(0, 9),
    count=st.integers(1, 25),
)
def test_many_numbers_equal_single_steps(
    minimum: int, width: int, increment: int, cycle: bool, called: bool, offset: int, count: int
) -> None:
    maximum = minimum + width
    sequence = Sequence(increment=increment, minimum=minimum, maximum=maximum, cycle=cycle)
    start = at = Position(min(minimum + offset, maximum), called)
    expected: list[int] = []
    for _ in range(count):
        step = one(sequence, at)
        if step is None:
            assert left(sequence, start) == len(expected)
            with pytest.raises(SequenceLimitExceeded):
                numbers(sequence, start, count)
            return
        at = step
        expected.append(at.last)
    found, end = numbers(sequence, start, count)
    assert found.tolist() == expected
    assert end == at


def test_the_last_numbers_of_bigint_do_not_overflow() -> None:
    end = 2**63 - 1
    found, at = numbers(Sequence(increment=2), Position(end - 2, called=False), 2)
    assert found.tolist() == [end - 2, end]
    with pytest.raises(SequenceLimitExceeded, match="reached maximum value"):
        numbers(Sequence(increment=2), at, 1)
