"""Workers that fail, disagree, are cancelled or die."""

import itertools
import threading
from typing import Any

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow.operators.reduce import Reduce as ReduceOperator
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.workers.engine import WorkersEngine
from foreshore.compute.workers.mesh import Channel
from foreshore.compute.workers.pool import Pool
from foreshore.errors import DatabaseError, QueryCanceled, Unavailable
from foreshore.expr.ir import Column, Reduce, count_all
from foreshore.ids import GlobalId
from foreshore.types import INT4
from tests.compute.cases import schema_of, updates
from tests.compute.workers.in_threads import workers
from tests.compute.workers.test_gathered_index import COLUMNS, T

COUNTS = Reduce(T, (Column(0, INT4, True),), (count_all(),))
DESCRIPTION = DataflowDescription(GlobalId("u8"), COUNTS, (T.id,), (), 100)
FIRST = [((i % 5, "x"), 100, 1) for i in range(20)]
INPUT = {T.id: Input(schema_of(COLUMNS), (), (updates(COLUMNS, FIRST),))}


def counts(table: pa.Table) -> dict[int, int]:
    """Return the counts that updates leave."""
    found: dict[tuple[int, int], int] = {}
    columns = (table.column(i).to_pylist() for i in (0, 1, 3))
    for key, count, diff in zip(*columns, strict=True):
        found[key, count] = found.get((key, count), 0) + diff
    return {key: count for (key, count), diff in found.items() if diff}


def test_step_that_fails_at_one_worker_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with workers(3) as engine:
        dataflow = engine.create(DESCRIPTION, {T.id: schema_of(COLUMNS)})
        rows = [dataflow.hydrate(INPUT).rows]
        change = {T.id: updates(COLUMNS, [((i, "y"), 101, 1) for i in range(5)])}
        real, failing = ReduceOperator.step, threading.Lock()

        def step(self: ReduceOperator, *args: object) -> object:
            found = real(self, *args)  # type: ignore[arg-type]
            if failing.acquire(blocking=False):  # the first worker that comes here
                raise DatabaseError("not now")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(ReduceOperator, "step", step)
            with pytest.raises(DatabaseError, match="not now"):
                dataflow.step(101, 102, change)
        rows.append(dataflow.step(101, 102, change).rows)
        assert counts(pa.concat_tables(rows)) == dict.fromkeys(range(5), 5)
        dataflow.close()


def test_step_that_not_all_workers_got_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waits for peers who never began this attempt gives up when they begin the next.

    The request to the second one may fail for lack of memory, for example.
    """
    with workers(2) as engine:
        dataflow = engine.create(DESCRIPTION, {T.id: schema_of(COLUMNS)})
        rows = [dataflow.hydrate(INPUT).rows]
        change = {T.id: updates(COLUMNS, [((i, "y"), 101, 1) for i in range(5)])}
        real, sent = Pool.ask, itertools.count()

        def ask(self: Pool, *args: Any) -> Any:
            if next(sent) == 1:
                raise MemoryError
            return real(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(Pool, "ask", ask)
            with pytest.raises(MemoryError):
                dataflow.step(101, 102, change)
        again = threading.Thread(
            target=lambda: rows.append(dataflow.step(101, 102, change).rows), daemon=True
        )
        again.start()
        again.join(20)
        assert not again.is_alive(), "one worker waits for the other"
        assert counts(pa.concat_tables(rows)) == dict.fromkeys(range(5), 5)
        dataflow.close()


def test_disagreement_loses_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    with workers(2) as engine:
        dataflow = engine.create(DESCRIPTION, {T.id: schema_of(COLUMNS)})
        dataflow.hydrate(INPUT)
        real = Channel.agree

        def agree(self: Channel) -> None:
            real(self)
            if self.index == 0:
                raise DatabaseError("too late")

        monkeypatch.setattr(Channel, "agree", agree)
        with pytest.raises(DatabaseError, match="too late"):
            dataflow.step(101, 102, {T.id: updates(COLUMNS, [((1, "y"), 101, 1)])})
        with pytest.raises(Unavailable):
            engine.check()


def test_cancelled_dataflow_waits_for_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    with workers(2) as engine:
        dataflow = engine.create(DESCRIPTION, {T.id: schema_of(COLUMNS)})
        dataflow.hydrate(INPUT)
        arrived, over = threading.Event(), threading.Event()
        told = threading.Semaphore(0)
        real, tell = Channel.agree, Channel.cancel

        def agree(self: Channel) -> None:
            if self.index == 0:
                arrived.set()
                over.wait(60)
            real(self)

        def cancelled(self: Channel) -> None:
            tell(self)
            told.release()

        monkeypatch.setattr(Channel, "agree", agree)
        monkeypatch.setattr(Channel, "cancel", cancelled)

        def cancel() -> None:
            arrived.wait(60)
            dataflow.cancel()
            for _ in range(2):  # until the second worker has heard of it, too
                told.acquire(timeout=60)
            over.set()

        threading.Thread(target=cancel).start()
        with pytest.raises(QueryCanceled):
            dataflow.step(101, 102, {T.id: updates(COLUMNS, [((1, "y"), 101, 1)])})
        dataflow.close()


def test_death_of_a_worker_process_fails_what_waits_for_it() -> None:
    bulk = DuckDbEngine(threads=1)
    pool = Pool(2)
    engine = WorkersEngine(bulk, pool)
    try:
        dataflow = engine.create(DESCRIPTION, {T.id: schema_of(COLUMNS)})
        assert counts(dataflow.hydrate(INPUT).rows) == dict.fromkeys(range(5), 4)
        engine.check()
        pool.processes[1].kill()
        with pytest.raises(Unavailable):
            dataflow.step(101, 102, {T.id: updates(COLUMNS, [((1, "y"), 101, 1)])})
        with pytest.raises(Unavailable):
            engine.check()
    finally:
        engine.close()
