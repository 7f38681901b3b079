"""Which rows a memo asks for, of those that it has answered before a start and since."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.storage.ingest.python.memo import KeptAnswers, _Loaded
from foreshore.storage.ingest.python.memo_rows import key_of, keys_of, net_rows, row_words
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc
from tests.effort import examples

DESC = RelationDesc(("n", "t"), (ColumnType(INT4), ColumnType(TEXT)))


def rows(numbers: list[int]) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int32()), "t": [f"é{n}" for n in numbers]})


def test_row_has_one_key_wherever_it_comes_from() -> None:
    some = rows([1, 2, 3])
    keys = keys_of(row_words(some, DESC))
    assert keys == [key_of('[1,"é1"]'), key_of('[2,"é2"]'), key_of('[3,"é3"]')]
    net = net_rows([some.append_column("d", pa.array([1, 1, 0]))], DESC)
    assert net.keys == keys[:2]


def test_rows_answered_before_a_start_are_not_asked_for() -> None:
    memo = KeptAnswers()
    for numbers in ([1, 2], [], list(range(10, 1000))):
        memo.load(row_words(rows(numbers), DESC), rows(numbers))

    def asked(numbers: list[int]) -> list[int]:
        net = net_rows([rows(numbers).append_column("d", pa.array([1] * len(numbers)))], DESC)
        places, _ = memo.change(net, pa.schema([]))
        return [net.rows.column("n")[place].as_py() for place in places]

    assert asked([2, 3, 500, 1000]) == [3, 1000]
    assert asked([3, 1000, 1001]) == [1001]
    memo.fail([key_of('[3,"é3"]')])
    assert asked([1, 3]) == [3]


WORDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)


@given(WORDS, WORDS, WORDS)
@settings(max_examples=examples(200))
def test_loaded_keys_are_found_also_if_they_begin_alike(
    first: list[tuple[int, int]], second: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    loaded = _Loaded()
    known = set[tuple[int, int]]()
    for part in (first, second):
        loaded.add(np.array(part, np.uint64).reshape(-1, 2))
        known |= {*part}
        keys = keys_of(np.array(asked, np.uint64).reshape(-1, 2))
        assert loaded.has(keys).tolist() == [each in known for each in asked]
