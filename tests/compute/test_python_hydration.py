"""How many rows a view that calls a function in Python looks at when it is hydrated."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.linear_dataflow import linear_dataflow
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Call, Get, Map
from foreshore.ids import GlobalId
from foreshore.python_functions.answers import Answers
from foreshore.python_functions.definition import PythonFunction, key_of
from foreshore.python_functions.limits import ALLOWED
from foreshore.types import INT4, ColumnType
from foreshore.update import update_schema
from tests.compute.plans import column

SOURCE = "def double(a): return 2 * a if a != 13 else 1 // 0"
ROWS = 1000
T = Get(GlobalId("u1"), (ColumnType(INT4),))
DOUBLED = Map(
    T, (Call(key_of(PythonFunction("double", SOURCE, ("int4",), "int4")), (column(0),), INT4),)
)


def _changed_often(path: Path, first: int) -> Input:
    """Return a collection of so many rows, each of which has replaced three others."""
    rows, times, diffs = list[int](), list[int](), list[int]()
    for version in range(4):
        values = range(first + version * ROWS, first + (version + 1) * ROWS)
        rows += values
        times += [version] * ROWS
        diffs += [1] * ROWS
        if version < 3:
            rows += values
            times += [version + 1] * ROWS
            diffs += [-1] * ROWS
    schema = pa.schema([pa.field("c0", pa.int32())])
    columns = [pa.array(rows, pa.int32()), pa.array(times, pa.int64()), pa.array(diffs, pa.int64())]
    pq.write_table(pa.Table.from_arrays(columns, schema=update_schema(schema)), path)
    return Input(schema, (str(path),))


@pytest.mark.parametrize(("first", "passes"), [(100, 2), (13 - 3 * ROWS, 3)])
def test_hydration_calls_for_present_rows_only_and_not_again_without_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, passes: int
) -> None:
    monkeypatch.setenv(ALLOWED, "1")
    asked = list[int]()
    outcome = Answers.outcome

    def counted(self: Answers, key: str, arrays: Any, *of: Any) -> Any:
        asked.append(len(arrays[0]))
        return outcome(self, key, arrays, *of)

    monkeypatch.setattr(Answers, "outcome", counted)
    engine = DuckDbEngine(threads=1, directories=[str(tmp_path)])
    description = DataflowDescription(GlobalId("u2"), DOUBLED, (T.id,), (), 5)
    dataflow = linear_dataflow(description, engine)
    assert dataflow is not None
    output = dataflow.hydrate({T.id: _changed_often(tmp_path / "t.parquet", first)})
    engine.close()
    fails = int(passes == 3)
    assert (output.rows.num_rows, output.errors.num_rows) == (ROWS - fails, fails)
    assert passes * ROWS - 10 <= sum(asked) <= passes * ROWS + 10
