"""A shard's rows are there once, whichever threads ask for them."""

from collections.abc import Sequence
from threading import Thread

import pyarrow as pa
import pytest

from foreshore.few_updates import FewUpdates, few_updates, together
from foreshore.ids import GlobalId
from foreshore.storage import shard as shard_module
from foreshore.storage.shard import Shard
from foreshore.update import update_schema

SCHEMA = update_schema(pa.schema([("a", pa.int32())]))


def one_row(value: int) -> FewUpdates:
    made = few_updates(SCHEMA, 5 + value, [(value,)], [1])
    assert made is not None
    return made


@pytest.mark.parametrize("asked", ["the tail", "its size", "more rows"])
def test_rows_are_put_into_columns_once(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    shard = Shard(GlobalId("u1"), SCHEMA)
    shard.add(1, 6, one_row(0))
    others: list[Thread] = []

    def interrupted(few: Sequence[FewUpdates]) -> pa.Table:
        """Make columns, while another thread has half a second to do something else."""
        made = together(few)
        if not others:
            work = {
                "the tail": lambda: shard.tail,
                "its size": lambda: shard.size_bytes(),
                "more rows": lambda: shard.add(1, 7, one_row(1)),
            }
            others.append(Thread(target=work[asked]))
            others[0].start()
            others[0].join(0.5)
        return made

    monkeypatch.setattr(shard_module, "together", interrupted)
    assert sum(part.updates.num_rows for part in shard.tail) == 1
    others[0].join()
    rows = pa.concat_tables([part.updates for part in shard.tail])["a"].to_pylist()
    assert rows == ([0, 1] if asked == "more rows" else [0])
    assert shard.count_tail() == len(rows)


def test_small_tables_of_a_tail_that_nobody_reads_are_merged() -> None:
    shard = Shard(GlobalId("u1"), SCHEMA)
    for value in range(3_000):
        rows = pa.table([[value], [value], [1]], schema=SCHEMA)
        shard.add(1 + value // 1_000, value + 1, rows)
    assert len(shard.tail) <= shard_module.PARTS_KEPT_APART
    rows = pa.concat_tables([part.updates for part in shard.tail])["a"].to_pylist()
    assert rows == list(range(3_000))
    assert {part.segment for part in shard.tail} == {1, 2, 3}
    sealed = [part for part in shard.tail if part.segment <= 2]
    assert sealed[-1].upper == 2_000
    assert shard.tail_bytes(2) == sum(part.updates.nbytes for part in sealed)
