"""A dataflow as a replica runs it: windows of what has arrived, each put out once."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.dataflow import Running
from foreshore.compute.engine import Dataflow, Output
from foreshore.compute.inputs import Contents, with_times
from foreshore.compute.linear import LinearDataflow, LinearFirst
from foreshore.compute.protocol import DataflowDescription, InputSnapshot
from foreshore.ids import GlobalId
from foreshore.storage.blob import FileBlob
from foreshore.storage.local_files import LocalFiles
from foreshore.update import encode_schema
from tests.compute.runtime.harness import KV_SCHEMA, contents, id_, index_on, rows, table

U1 = id_("u1")


class FailingOnce(LinearFirst):
    """An engine of which the first step of each dataflow fails."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        dataflow = super().create(description, schemas)
        assert isinstance(dataflow, LinearDataflow)
        step = dataflow.step
        failed: list[bool] = []

        def failing(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
            if not failed:
                failed.append(True)
                raise OSError("no more threads")
            return step(lower, upper, deltas)

        dataflow.step = failing  # type: ignore[method-assign]
        return dataflow


def test_nothing_is_passed_over_while_a_step_is_to_be_tried_again(tmp_path: Path) -> None:
    (get,) = table("u1")
    description = DataflowDescription(id_("u2"), get, (U1,), (index_on("u3", 0, of=get),), 1)
    snapshot = InputSnapshot(U1, 1, 2, (), 1, encode_schema(KV_SCHEMA))
    tail = (with_times(rows((1, "a")), 1),)
    imports = {U1: Contents(snapshot, KV_SCHEMA, tail, LocalFiles(FileBlob(tmp_path), tmp_path))}
    running = Running(description, imports, {})
    running.hydrate(FailingOnce(DuckDbEngine()))
    running.queues[U1].feed(2, 4, with_times(rows((2, "b")), 3))
    running.begin_step()
    with pytest.raises(OSError, match="no more threads"):
        running.step()
    running.queues[U1].feed(4, 9, None)  # time goes on
    assert not running.progress(9)
    running.begin_step()
    running.step()
    assert running.frontier == 4
    assert running.progress(9)
    index = running.indexes[id_("u3")].rows
    assert contents(index.scan(2)) == Counter({(1, "a"): 1})
    assert contents(index.scan(8)) == Counter({(1, "a"): 1, (2, "b"): 1})
