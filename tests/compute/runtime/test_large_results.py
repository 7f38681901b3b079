"""A result too large for memory fails alone and at once."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from psycopg import errors

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation, result_schema
from foreshore.compute.finish import MAX_RESULT_BYTES, expanded
from foreshore.errors import OutOfMemory, QueryCanceled
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Finishing, FlatMap, Join, Literal, Reduce, count_all
from foreshore.types import INT4, TEXT, ColumnType
from tests.harness import Server, serving, until

pytestmark = pytest.mark.full


def numbers(count: int) -> FlatMap:
    bounds = (Literal(1, INT4), Literal(count, INT4))
    return FlatMap(Join(()), "generate_series(int4,int4)", bounds, (ColumnType(INT4, False),))


PAIRS = Join((numbers(100_000), numbers(100_000)))  # 80 GB


def resident_mb(pid: int | str) -> int:
    fields = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()
    return int(fields[0]) >> 10


@pytest.fixture(scope="module")
def engine() -> DuckDbEngine:
    return DuckDbEngine(memory_limit="100MB")


def test_result_within_limit_is_unchanged(engine: DuckDbEngine) -> None:
    bounded = engine.evaluate(numbers(300_000), {}, 0, max_bytes=16 << 20)
    assert bounded.sort_by("c0") == engine.evaluate(numbers(300_000), {}, 0).sort_by("c0")
    assert bounded.schema == result_schema(columns_of(numbers(1)))
    assert engine.evaluate(numbers(0), {}, 0, max_bytes=1).num_rows == 0


def test_result_over_limit_is_refused(engine: DuckDbEngine) -> None:
    with pytest.raises(OutOfMemory) as raised:
        engine.evaluate(numbers(300_000), {}, 0, max_bytes=1 << 20)
    assert (raised.value.sqlstate, raised.value.message) == ("53200", "out of memory")


def test_oversized_state_is_refused_and_engine_continues(engine: DuckDbEngine) -> None:
    with pytest.raises(OutOfMemory):
        engine.evaluate(PAIRS, {}, 0, max_bytes=1 << 30)
    counted = Reduce(numbers(5), (), (count_all(),))
    assert engine.evaluate(counted, {}, 0)["c0"].to_pylist() == [5]


def test_spilled_data_is_bounded(tmp_path: Path) -> None:
    small = DuckDbEngine(memory_limit="50MB", scratch=str(tmp_path / "spill"), spill_limit="20MB")
    with pytest.raises(OutOfMemory):
        small.evaluate(PAIRS, {}, 0, max_bytes=1 << 30)
    assert small.evaluate(numbers(5), {}, 0).num_rows == 5
    small.close()


def test_cancellation_ends_evaluation_at_any_point(engine: DuckDbEngine) -> None:
    for relation in (PAIRS, Reduce(PAIRS, (), (count_all(),))):
        cancellation = Cancellation()
        timer = threading.Timer(0.3, cancellation.cancel)
        timer.start()
        with pytest.raises((QueryCanceled, OutOfMemory)):
            engine.evaluate(relation, {}, 0, cancellation, 1 << 30)
        timer.join()


def rows_of(values: list[str], diffs: list[int]) -> pa.Table:
    return pa.table([values, diffs], schema=result_schema((ColumnType(TEXT, False),)))


def test_repeated_rows_are_expanded_only_up_to_limit() -> None:
    result = rows_of(["a", "b"], [10**12, 3])
    finishing = Finishing((), 6, 1, (0,))
    assert expanded(result, finishing).column(0).to_pylist() == ["a"] * 7 + ["b"] * 3
    with pytest.raises(OutOfMemory):
        expanded(result)


def test_weight_counts_rare_long_value_once() -> None:
    long = "x" * (1 << 20)
    short = [""] * 1000
    beyond = MAX_RESULT_BYTES // len(long) + 1
    with pytest.raises(OutOfMemory):
        expanded(rows_of([long, *short], [beyond, *([1] * 1000)]))
    assert expanded(rows_of([long, *short], [1, *([1000] * 1000)])).num_rows == 1_000_001


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("large") / "data") as server, server.connect() as sql:
        sql.execute("CREATE TABLE t (i int)")
        sql.execute("INSERT INTO t SELECT * FROM generate_series(1, 30000)")
        sql.execute("CREATE VIEW v AS SELECT i % 10 AS k, count(*) AS n FROM t GROUP BY 1")
        sql.execute("CREATE DEFAULT INDEX ON v")
        yield server


LONG = "SELECT count(*) FROM t a, t b WHERE (a.i * 7 + b.i) % 13 = 3"
TOO_MUCH = ["SELECT 1 FROM t a, t b"]  # computed by the replica


@pytest.mark.parametrize("query", TOO_MUCH)
def test_query_memory_is_bounded(server: Server, query: str) -> None:
    assert server.process is not None
    with server.connect() as one, server.connect() as other:
        pids = {server.process.pid} | server.children()
        outcome: list[object] = []

        def run() -> None:
            try:
                outcome.append(one.execute(query.encode()).rowcount)
            except psycopg.Error as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        most, answers = 0, 0
        while thread.is_alive():
            most = max(most, *map(resident_mb, pids))
            assert other.execute("SELECT sum(n) >= 30000 FROM v").fetchall() == [(True,)]
            other.execute("INSERT INTO t VALUES (1)")
            answers += 1
        assert isinstance(outcome[0], errors.OutOfMemory), outcome
        assert most < 4096, f"{most} MB"
        assert one.execute("SELECT count(*) FROM v").fetchall() == [(10,)]
        assert pids == {server.process.pid} | server.children()  # no process was restarted


def test_limit_of_repeated_row_is_answered(server: Server) -> None:
    with server.connect() as one:
        assert one.execute("SELECT 1 FROM t a, t b LIMIT 3").fetchall() == [(1,)] * 3


def seconds_of_work(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.parametrize("how", ["cancel", "cut"])
def test_abandoned_query_stops(server: Server, how: str) -> None:
    one = server.connect()
    one.execute("SET client_connection_check_interval = 100")
    (replica,) = server.children()
    before = seconds_of_work(replica)

    def run() -> None:
        with pytest.raises(psycopg.OperationalError):
            one.execute(LONG)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: seconds_of_work(replica) > before + 0.5, "the replica works")
    if how == "cancel":
        one.cancel()
    else:
        with socket.socket(fileno=os.dup(one.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
    thread.join()

    def idle() -> bool:
        worked = seconds_of_work(replica)
        time.sleep(0.5)
        return seconds_of_work(replica) - worked < 0.1

    until(idle, "the replica is idle", 10)
