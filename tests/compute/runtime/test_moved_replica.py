"""A replica that serves another database, with the same ids, while it is at work for the last one."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.checkpoint.engine import Shared
from foreshore.compute.checkpoint.manifest import Manifest
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.engine import Dataflow
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.inputs import with_times
from foreshore.compute.protocol import (
    CreateDataflow,
    CreateInstance,
    DataflowDescription,
    InitializationComplete,
    InputSnapshot,
)
from foreshore.compute.replica.checkpoints import Checkpointer, Pace
from foreshore.compute.replica.replica import Replica
from foreshore.expr.ir import Column, Join
from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello
from foreshore.types import INT4
from foreshore.update import encode_schema
from tests.compute.runtime.harness import KV_SCHEMA, contents, id_, index_on, rows, run, table
from tests.compute.runtime.test_replica import INDEX, Controller, until, upper_of

(U1,) = table("u1")
KEYS = ((Column(0, INT4), Column(2, INT4)),)
JOINED = Join((U1, U1), KEYS)
OFTEN = {"checkpoint_interval_ms": "30", "checkpoint_least_bytes": "0"}


class _Gated(FlowEngine):
    """An engine whose first dataflow, or first state that is loaded or saved, waits for `opened`."""

    def __init__(self, gate: str) -> None:
        super().__init__(DuckDbEngine())
        self.reached, self.opened = threading.Event(), threading.Event()
        self.used: list[Collections] = []  # by dataflows, in the order of their creation
        self._gate = gate

    def _wait(self, gate: str) -> None:
        if gate == self._gate and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(60)

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        self._wait("create")
        self.used.append(self._collections)
        return super().create(description, schemas)

    def load_shared(self, shared: Shared) -> None:
        self._wait("load")
        super().load_shared(shared)

    def save_shared(self, strings: int) -> Shared:
        self._wait("save")
        return super().save_shared(strings)


def begin(replica: Replica, data: Path, database: str) -> None:
    """Connect a controller of a database whose view joins u1 with itself."""
    controller = Controller(replica)
    controller.tell(Hello("c.r"))
    options = {"data_dir": str(data), **OFTEN}
    controller.tell(CreateInstance("embedded", options, database))
    description = DataflowDescription(
        id_("u2"), JOINED, (id_("u1"),), (index_on(INDEX, 0, of=JOINED),), 1
    )
    snapshot = InputSnapshot(id_("u1"), 0, 3, (), 1, encode_schema(KV_SCHEMA))
    updates = with_times(rows((1, database)), 1)
    controller.tell(CreateDataflow(description, (snapshot,), ()), updates)
    controller.tell(InitializationComplete())


async def shown(replica: Replica) -> "Counter[Any]":
    """Return the rows of the view, once it is hydrated."""
    await until(lambda: replica._history is None and upper_of(replica) == 3)
    (running,) = replica._dataflows.values()
    return contents(pa.Table.from_batches([running.indexes[INDEX].rows.scan(2)]))


def with_replica(
    data: Path, engine: _Gated, scenario: Callable[[Replica], Any], seconds: float = 120
) -> None:
    async def main() -> None:
        replica = Replica({"embedded": lambda _: engine}, data / "scratch")
        (data / "scratch").mkdir(exist_ok=True)
        running = asyncio.create_task(replica.run())
        await asyncio.sleep(0)  # it runs
        try:
            await scenario(replica)
        finally:
            engine.opened.set()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    run(main, seconds)


def test_dataflow_created_late_shares_nothing_with_those_of_the_next_database(
    tmp_path: Path,
) -> None:
    engine = _Gated("create")

    async def scenario(replica: Replica) -> None:
        begin(replica, tmp_path, "one")
        await until(engine.reached.is_set)
        begin(replica, tmp_path, "two")
        engine.opened.set()
        assert await shown(replica) == Counter({(1, "two", 1, "two"): 1})
        first, second = engine.used
        assert first is not second

    with_replica(tmp_path, engine, scenario)


def test_state_loaded_late_is_not_that_of_the_next_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = FlowEngine(DuckDbEngine())
    loaded: list[Collections] = []
    engine = _Gated("load")

    def load(self: Checkpointer, engine: Any, store: CheckpointStore, database: str) -> None:
        if database == "one":
            engine.load_shared(saving.save_shared(1))
            loaded.append(engine._collections)

    monkeypatch.setattr(Checkpointer, "_load", load)

    async def scenario(replica: Replica) -> None:
        begin(replica, tmp_path, "one")
        await until(engine.reached.is_set)
        begin(replica, tmp_path, "two")
        engine.opened.set()
        assert await shown(replica) == Counter({(1, "two", 1, "two"): 1})
        assert loaded
        assert engine.used[-1] not in loaded

    with_replica(tmp_path, engine, scenario)


def test_checkpoint_that_is_under_way_is_not_written_for_either_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[tuple[str, str]] = []
    keep = CheckpointStore.put

    def note(self: CheckpointStore, manifest: Manifest) -> None:
        put.append((manifest.database, serves()))
        keep(self, manifest)

    monkeypatch.setattr(CheckpointStore, "put", note)
    engine = _Gated("save")
    serves: Callable[[], str] = str

    async def scenario(replica: Replica) -> None:
        nonlocal serves
        serves = lambda: replica._checkpoints._database  # noqa: E731
        begin(replica, tmp_path, "one")
        await until(engine.reached.is_set)
        begin(replica, tmp_path, "two")
        engine.opened.set()
        assert await shown(replica) == Counter({(1, "two", 1, "two"): 1})
        await until(lambda: bool(put))
        assert set(put) == {("two", "two")}

    with_replica(tmp_path, engine, scenario)


def test_nothing_is_loaded_for_a_database_that_was_left_before_its_turn() -> None:
    loaded: list[str] = []
    opened: list[Checkpointer] = []

    class Store:
        def newest(self) -> None:
            loaded.append(opened[0]._database)

    engine, store = FlowEngine(DuckDbEngine()), cast(CheckpointStore, Store())

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            checkpoints = Checkpointer({}, pool, lambda _: None, lambda _: None, lambda: False)
            opened.append(checkpoints)
            async with checkpoints._lock:  # as during a round
                opening = []
                for database in ("two", "three"):
                    checkpoints.serve(database)
                    opening.append(
                        asyncio.create_task(
                            checkpoints.open(engine, store, database, Pace(1, 0), pool)
                        )
                    )
                    await asyncio.sleep(0)
            await opening[0]
            assert not checkpoints.opened
            await opening[1]
            assert checkpoints.opened
        assert loaded == ["three"]

    run(main)
