"""Sizes of inputs are those of their values, also where they are stored only once."""

from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.compute.engine import Input
from foreshore.compute.input_sizes import known_sizes
from foreshore.expr.held import Shape
from foreshore.ids import GlobalId
from foreshore.storage.batch import BatchMetadata, write_batch
from foreshore.storage.blob import FileBlob
from foreshore.storage.local_files import LocalFiles
from foreshore.update import update_schema

ID = GlobalId("u1")
ROWS = 1000
VALUES: dict[str, tuple[object, pa.DataType, int]] = {
    "a text": ("x" * 5000, pa.string(), 5000),
    "bytes": (b"x" * 5000, pa.binary(), 5000),
    "texts": (["x" * 500] * 10, pa.list_(pa.string()), 5000),
    "numbers": ([7] * 1000, pa.list_(pa.int64()), 8000),
    "fields": ({"a": "x" * 4992, "b": 1}, pa.struct({"a": pa.string(), "b": pa.int64()}), 5000),
    "a number": (7, pa.int64(), 8),
}


@pytest.mark.parametrize("diffs", [[1] * ROWS, [ROWS], [1, -64, 65], [1] * (ROWS - 2) + [2]])
@pytest.mark.parametrize("name", VALUES)
def test_rows_and_values_that_are_repeated_have_their_sizes(
    tmp_path: Path, name: str, diffs: list[int]
) -> None:
    value, type, size = VALUES[name]
    schema = pa.schema([pa.field("a", type)])
    updates = pa.table(
        [pa.array([value] * len(diffs), type), range(len(diffs)), diffs],
        schema=update_schema(schema),
    )
    files = LocalFiles(FileBlob(tmp_path / "blob"), tmp_path / "cache")
    metadata = BatchMetadata("u1", 0, ROWS, 0)
    batch = write_batch(
        files, "a", tmp_path / "scratch", updates.schema, metadata, updates.to_batches()
    )
    rows = sum(map(abs, diffs))
    with files.of([batch]) as (path,):
        for input in (Input(schema, (str(path),)), Input(schema, (), (updates,))):
            shape = known_sizes({ID: input})[ID]
            assert shape.rows == rows
            assert size <= shape.sizes[0] <= 2 * size + 8, shape


def test_no_rows_have_sizes() -> None:
    schema = pa.schema([pa.field("a", pa.string())])
    input = Input(schema, (), (update_schema(schema).empty_table(),))
    assert known_sizes({ID: input, GlobalId("u2"): Input(schema)}) == {
        ID: Shape(1, (0,)),
        GlobalId("u2"): Shape(1, (0,)),
    }
