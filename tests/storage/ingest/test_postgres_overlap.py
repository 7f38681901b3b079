"""What a stream sends again is passed over, but for what tables are like."""

import struct

import pytest

from foreshore.storage.ingest.postgres.overlap import HistoryChanged, Overlap


def begin(at: int) -> bytes:
    return b"B" + struct.pack(">QqI", at, 0, 1)


def commit(at: int, end: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, at, end, 0)


def table(id: int, name: bytes) -> bytes:
    return b"R" + struct.pack(">I", id) + name


def row(id: int) -> bytes:
    return b"I" + struct.pack(">I", id) + b"N"


AGAIN = [begin(10), table(1, b"a"), table(2, b"b"), row(1), row(2), commit(10, 20)]


def taken(overlap: Overlap, *messages: bytes) -> list[bytes]:
    return [each for message in messages for each in overlap.taken(message)]


def test_what_was_taken_is_passed_over_and_tables_stay_described() -> None:
    overlap = Overlap(5, 30, 20)
    assert taken(overlap, *AGAIN) == []
    overlap.reached(29)
    assert not overlap.is_over
    # Table 2 is described anew, table 1 is not.
    new = [begin(30), table(2, b"c"), row(2), row(1), row(1), commit(30, 40)]
    found = taken(overlap, *new)
    assert found == [*new[:3], table(1, b"a"), *new[3:]]
    assert overlap.is_over
    truncate = b"T" + struct.pack(">IBII", 2, 0, 1, 2)
    assert taken(overlap, truncate) == [truncate]


def test_a_truncation_finds_its_tables_described() -> None:
    overlap = Overlap(5, 30, 20)
    truncate = b"T" + struct.pack(">IBII", 2, 0, 2, 1)
    assert taken(overlap, *AGAIN, begin(30), truncate)[1:] == [
        table(2, b"b"),
        table(1, b"a"),
        truncate,
    ]


@pytest.mark.parametrize("others", [[], [begin(10), commit(10, 19)]])
def test_another_history_is_told(others: list[bytes]) -> None:
    overlap = Overlap(5, 30, 20)
    assert taken(overlap, *others) == []
    with pytest.raises(HistoryChanged):
        overlap.taken(begin(35))
    idle = Overlap(5, 30, 20)
    assert taken(idle, *others) == []
    with pytest.raises(HistoryChanged):
        idle.reached(30)


@pytest.mark.parametrize("start", [5, 20, 22])
def test_a_transaction_between_the_last_and_the_position_is_of_another_history(start: int) -> None:
    again = AGAIN if start < 20 else []
    overlap = Overlap(start, 30, 20)
    assert taken(overlap, *again, begin(24)) == []
    with pytest.raises(HistoryChanged):
        overlap.taken(commit(24, 26))
    same = Overlap(start, 30, 20)
    assert taken(same, *again, begin(30)) == [begin(30)]
