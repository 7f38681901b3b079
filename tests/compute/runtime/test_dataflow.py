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


@pytest.mark.parametrize("at", ["hydration", "a step"])
def test_what_was_done_before_an_insertion_failed_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    (get,) = table("u1")
    exports = (index_on("u3", 0, of=get), index_on("u4", 1, of=get))
    description = DataflowDescription(id_("u2"), get, (U1,), exports, 1)
    snapshot = InputSnapshot(U1, 1, 2, (), 1, encode_schema(KV_SCHEMA))
    tail = (with_times(rows((1, "a")), 1),)
    imports = {U1: Contents(snapshot, KV_SCHEMA, tail, LocalFiles(FileBlob(tmp_path), tmp_path))}
    running = Running(description, imports, {})
    engine = LinearFirst(DuckDbEngine())
    last = running.indexes[id_("u4")].rows
    insert, left = last.insert, [1 if at == "hydration" else 2]

    def failing(updates: pa.Table, upper: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise MemoryError("no more memory")
        insert(updates, upper)

    monkeypatch.setattr(last, "insert", failing)
    if at == "hydration":
        with pytest.raises(MemoryError):
            running.hydrate(engine)
    running.hydrate(engine)
    running.queues[U1].feed(2, 4, with_times(rows((2, "b")), 3))
    running.begin_step()
    if at == "a step":
        assert running._dataflow is not None
        steps: list[int] = []
        step = running._dataflow.step

        def counted(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
            steps.append(upper)
            return step(lower, upper, deltas)

        monkeypatch.setattr(running._dataflow, "step", counted)
        with pytest.raises(MemoryError):
            running.step()
        running.step()
        assert len(steps) == 1
    else:
        running.step()
    for index in running.indexes.values():
        assert contents(index.rows.scan(3)) == Counter({(1, "a"): 1, (2, "b"): 1})
