"""Spark's store, as far as it works without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.compute.bulk import spark
from foreshore.compute.bulk.spark import Contents, SparkStore
from foreshore.compute.delta.tables import Layout


class StoreOfAFullDisk(SparkStore):
    def __init__(self, contents: Contents) -> None:
        self._contents = {"s0": contents}
        self._changes = {"d0": pa.table({"c0": [1, 2], "d": [1, 1]})}
        self._saved = {}

    def _write_tail(self, contents: Contents) -> None:
        raise OSError("no space left on device")


def test_step_succeeds_when_contents_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "TAIL_ENTRIES", 1)
    layout = Layout((("c0", "BIGINT"),), (("c0",),), (("d", "BIGINT"),))
    contents = Contents(layout, tmp_path, [])
    store = StoreOfAFullDisk(contents)
    store.absorb("s0", "d0")
    store.commit()  # a repeated step would add its changes twice
    store.rollback()  # of a later step without work
    assert [table.num_rows for table in contents.tail] == [2]
