"""`foreshore.open` and `foreshore.connect` against a server of their own."""

import asyncio
import datetime
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foreshore
from foreshore.embedded.database import Database, _result
from foreshore.embedded.errors import NotReceived
from foreshore.embedded.subscription import Changes, Event
from foreshore.errors import DatabaseError, LockFileExists, Unavailable
from tests.harness import free_port, until

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with foreshore.open(tmp_path_factory.mktemp("embedded") / "data") as opened:
        yield opened


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name for the objects of a test."""
    found: str = request.node.name
    return "t_" + found.partition("[")[0].removeprefix("test_")[:40]


def test_import_loads_no_client() -> None:
    code = "import sys, foreshore; print([m for m in ('pyarrow', 'asyncpg', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_rows_come_as_arrow_pandas_polars_and_python(db: Database) -> None:
    result = db.sql("SELECT 1 AS a, 'x' AS b, NULL::date AS c;")
    assert result.arrow().schema.types == [pa.int32(), pa.string(), pa.date32()]
    assert result.df().to_dict("list") == {"a": [1], "b": ["x"], "c": [None]}
    assert result.fetchall() == [(1, "x", None)]
    pytest.importorskip("polars")
    assert result.pl().rows() == [(1, "x", None)]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e40"])
def test_numeric_that_arrow_has_not_is_in_rows_and_a_parameter(db: Database, text: str) -> None:
    value = Decimal(text)
    query = "SELECT $1, ARRAY[$1, 1], sum(x) FROM (VALUES ($1), (NULL)) AS v (x) WHERE x = $1"
    (row,) = db.sql(f"{query} GROUP BY x", [value]).fetchall()
    assert str(row) == str((db.sql("SELECT $1", [value]).scalar(), [row[0], Decimal(1)], row[0]))
    assert str(row[0]) == str(value) or row[0] == value
    with db.subscribe("SELECT $1 AS x", [value]) as changes:
        with pytest.raises(DatabaseError, match='column "x"') as error:
            next(iter(changes))
        assert error.value.sqlstate == "22003"


@pytest.mark.parametrize(
    "query", ["SELECT $1 -- last", "VALUES ($1)", "(SELECT $1)", "WITH q AS (SELECT $1) TABLE q"]
)
def test_parameters_are_in_place(db: Database, query: str) -> None:
    text = "it's \\ $1 \n \" é"
    assert db.sql(query, [text]).scalar() == text


def test_statements_without_rows_and_those_of_few(db: Database, name: str) -> None:
    assert db.sql(f"CREATE TABLE {name} (a int)").status == "CREATE TABLE"
    assert db.sql(f"INSERT INTO {name} VALUES ($1), ($2) RETURNING a", [1, 2]).fetchall() == [
        (1,),
        (2,),
    ]
    assert db.execute(f"UPDATE {name} SET a = a + 1; DELETE FROM {name} WHERE a = 2") == "DELETE 1"
    assert db.sql("SHOW server_encoding").fetchall() == [("UTF8",)]
    assert len(db.sql(f"EXPLAIN SELECT * FROM {name}")) >= 1


def test_with_stands_before_changes_too(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (a text)")
    values = "WITH q (a) AS (VALUES ('select'), ($1))"
    assert db.sql(f"{values} INSERT INTO {name} TABLE q", ["(x"]).status == "INSERT 0 2"
    changed = db.sql(f"{values} DELETE FROM {name} USING q WHERE {name}.a = q.a RETURNING 1", ["x"])
    assert changed.fetchall() == [(1,)]
    assert db.sql(f"{values} SELECT q.a FROM q, {name}", ["(x"]).arrow().num_rows == 2


def test_error_has_the_fields_of_the_server(db: Database) -> None:
    with pytest.raises(DatabaseError, match='column "nope" does not exist') as raised:
        db.sql("SELECT nope")
    assert (raised.value.sqlstate, raised.value.position is not None) == ("42703", True)
    with pytest.raises(DatabaseError, match="division by zero") as raised:
        db.sql("SELECT 1 / x FROM generate_series(-10, 10) x")
    assert raised.value.sqlstate == "22012"
    assert db.sql("SELECT 1").scalar() == 1


def test_values_are_the_same_from_queries_and_from_changes(db: Database, name: str) -> None:
    """Queries come as Arrow, the rows of RETURNING, EXECUTE and FETCH by the protocol."""
    columns = "a interval, b interval[], c jsonb, d interval, e json"
    db.execute(f"CREATE TABLE {name} ({columns})")
    values = """('1 day 00:00:01', '{1 mon,-2 days}', '{"x": [1.5, null]}', '1 mon', '[1]')"""
    expected = (
        datetime.timedelta(days=1, seconds=1),
        [pa.MonthDayNano([1, 0, 0]), datetime.timedelta(days=-2)],
        {"x": [1.5, None]},
        pa.MonthDayNano([1, 0, 0]),
        [1],
    )
    changed = db.sql(f"INSERT INTO {name} VALUES {values} RETURNING *")
    assert changed.fetchall() == [expected]
    assert db.sql(f"TABLE {name}").fetchall() == [expected]
    db.execute(f"PREPARE p_{name} AS TABLE {name}")
    assert db.sql(f"EXECUTE p_{name}").fetchall() == [expected]
    assert changed.arrow().schema.field("c").type == pa.json_(pa.string())
    # What came out goes in again, with its types.
    copy = f"{name}_copy"
    db.register(copy, db.sql(f"SELECT a, c, d FROM {name}").arrow())
    assert db.sql(f"TABLE {copy}").fetchall() == [(expected[0], expected[2], expected[3])]
    assert db.sql(f"TABLE {copy}").types == ["interval", "jsonb", "interval"]
    db.execute(f"DROP TABLE {name}, {copy}")


def test_frame_that_is_not_registered_is_named_in_a_hint(db: Database) -> None:
    my_frame = pd.DataFrame({"a": [1]})
    with pytest.raises(DatabaseError) as raised:
        db.sql("SELECT * FROM my_frame")
    assert 'db.register("my_frame", my_frame)' in (raised.value.hint or "")
    assert raised.value.__notes__[-1].startswith("HINT:")
    with pytest.raises(DatabaseError) as raised:
        db.execute("CREATE VIEW v AS TABLE my_frame")
    assert raised.value.hint
    with pytest.raises(DatabaseError) as raised:
        db.sql("SELECT * FROM 'data/x.parquet'")
    assert 'db.read_parquet("a_name", "data/x.parquet")' in (raised.value.hint or "")
    my_text = "x"
    with pytest.raises(DatabaseError) as raised:
        db.sql("SELECT * FROM my_text")
    assert raised.value.hint is None
    assert (len(my_frame), my_text) == (1, "x")


def test_subscribe_without_end_is_refused_where_rows_are_collected(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (a int)")
    for run in (db.sql, db.execute):
        with pytest.raises(DatabaseError, match="has no end") as raised:
            run(f"-- all of it\n SUBSCRIBE {name}")
        assert "subscribe(" in (raised.value.hint or "")


@pytest.mark.parametrize("copy", ["FROM STDIN", "TO STDOUT"])
def test_copy_of_the_client_is_refused_and_not_waited_for(
    db: Database, name: str, copy: str
) -> None:
    db.execute(f"CREATE TABLE {name} (a int); INSERT INTO {name} VALUES (1)")
    runs = (db.sql, db.execute, lambda text: db.execute(f"SELECT 1; {text}"))
    for run in runs:
        with pytest.raises(DatabaseError, match="needs a client") as raised:
            run(f"COPY {name} {copy}")
        assert raised.value.sqlstate == "0A000"
    assert db.sql(f"SELECT * FROM {name}").fetchall() == [(1,)]
    db.execute(f"DROP TABLE {name}")


def test_large_result_streams(db: Database) -> None:
    reader = db.stream("SELECT x, x::text AS t FROM generate_series(1, $1) x", [300_000])
    assert reader.schema.names == ["x", "t"]
    assert sum(batch.num_rows for batch in reader) == 300_000
    left = db.stream("SELECT * FROM generate_series(1, 1000000) x")
    assert left.read_next_batch().num_rows > 0
    left.close()
    assert db.stream("SELECT 1 AS a WHERE false").read_all().schema.names == ["a"]
    with pytest.raises(DatabaseError, match="does not exist"):
        db.stream("SELECT nope")


def test_transaction_commits_or_rolls_back_as_a_whole(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (a int PRIMARY KEY)")
    with db.transaction() as inside:
        inside.execute(f"INSERT INTO {name} VALUES (1)")
        with pytest.raises(DatabaseError, match="duplicate key"), db.transaction():
            db.execute(f"INSERT INTO {name} VALUES (1)")
        db.execute(f"INSERT INTO {name} VALUES (2)")
    with pytest.raises(ZeroDivisionError), db.transaction():  # noqa: PT012
        db.execute(f"INSERT INTO {name} VALUES (3)")
        raise ZeroDivisionError
    assert sorted(db.sql(f"TABLE {name}")) == [(1,), (2,)]


def test_statement_of_another_thread_is_no_part_of_a_transaction(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (a int)")
    with ThreadPoolExecutor(1) as other:
        with pytest.raises(ZeroDivisionError), db.transaction():  # noqa: PT012
            db.execute(f"INSERT INTO {name} VALUES (1)")
            waiting = other.submit(db.execute, f"INSERT INTO {name} VALUES (2)")
            raise ZeroDivisionError
        assert waiting.result(60) == "INSERT 0 1"
    assert db.sql(f"TABLE {name}").fetchall() == [(2,)]


def test_many_threads_share_one_object(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (a int)")
    sessions = [db.session() for _ in range(2)]
    with ThreadPoolExecutor(6) as threads:
        work = [
            threads.submit((db, *sessions)[i % 3].execute, f"INSERT INTO {name} VALUES ({i})")
            for i in range(30)
        ]
        assert {each.result(60) for each in work} == {"INSERT 0 1"}
    assert db.sql(f"SELECT count(*), sum(a)::int FROM {name}").fetchall() == [(30, 435)]
    for session in sessions:
        session.close()


def test_frames_become_tables(db: Database, name: str) -> None:
    frame = pd.DataFrame({"K": ["a", "b"], "n": [1, 2]})
    assert db.register(name, frame) == 2
    with pytest.raises(DatabaseError, match="already exists"):
        db.register(name, frame)
    db.execute(f"CREATE MATERIALIZED VIEW {name}_v AS SELECT sum(n)::int AS n FROM {name}")
    assert db.register(name, frame, if_exists="append") == 2
    assert db.sql(f"TABLE {name}_v").scalar() == 6
    assert db.register(name, pa.table({"n": [5], "K": ["z"]}), if_exists="replace") == 1
    assert db.sql(f'SELECT "K", n FROM {name}').fetchall() == [("z", 5)]
    assert db.sql(f"TABLE {name}_v").scalar() == 5


def test_rows_that_do_not_fit_change_nothing(db: Database, name: str) -> None:
    db.register(name, pa.table({"n": [1]}))
    with pytest.raises(DatabaseError, match="invalid input syntax for type bigint") as raised:
        db.register(name, pa.table({"n": ["1", "x"]}), if_exists="replace")
    assert raised.value.where is not None
    assert "line 2, column n" in raised.value.where
    assert db.sql(f"TABLE {name}").fetchall() == [(1,)]
    with pytest.raises(DatabaseError):
        db.register(
            f"{name}_new", pa.table({"n": pa.array([2**64 - 1], pa.uint64()), "l": [{"a": 1}]})
        )
    assert db.sql("SELECT to_regclass($1)", [f"{name}_new"]).scalar() is None


def test_parquet_and_csv_are_read(db: Database, name: str, tmp_path: Path) -> None:
    for part in range(3):
        table = pa.table({"id": range(part * 100, part * 100 + 100), "s": ["x"] * 100})
        pq.write_table(table, tmp_path / f"{part}.parquet")
    (tmp_path / "c.csv").write_text("id,s\n7,seven\n")
    assert db.read_parquet(name, tmp_path / "*.parquet") == 300
    assert db.read_csv(name, tmp_path / "c.csv", if_exists="append") == 1
    assert db.sql(f"SELECT count(*), max(id) FROM {name}").fetchall() == [(301, 299)]


def test_subscription_gives_contents_then_each_time_whole(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (k text, n int)")
    db.execute(f"INSERT INTO {name} VALUES ('a', 1)")
    with db.subscribe(f"SELECT k, sum(n)::int AS n FROM {name} GROUP BY k") as changes:
        first = next(changes)
        assert isinstance(first, Changes)
        assert first.snapshot
        assert first.rows.to_pylist() == [{"mz_diff": 1, "k": "a", "n": 1}]
        db.execute(f"INSERT INTO {name} VALUES ('a', 2), ('b', 5)")
        second = next(changes)
        assert isinstance(second, Changes)
        assert second.time > first.time
        assert sorted(second.added.to_pylist(), key=str) == [
            {"mz_diff": 1, "k": "a", "n": 3},
            {"mz_diff": 1, "k": "b", "n": 5},
        ]
        assert second.removed.to_pylist() == [{"mz_diff": -1, "k": "a", "n": 1}]
    assert list(changes) == []


def test_subscription_adds_up_to_the_view_under_concurrent_writes(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (k int, n int)")
    query = f"SELECT k, count(*) AS c FROM {name} GROUP BY k"
    total: dict[tuple[int, int], int] = {}

    def write(session: Database) -> None:
        for i in range(20):
            session.execute(f"INSERT INTO {name} VALUES ({i % 3}, {i})")

    writers = [threading.Thread(target=write, args=(db.session(),)) for _ in range(2)]
    with db.subscribe(query) as changes:
        for writer in writers:
            writer.start()
        for change in changes:
            assert isinstance(change, Changes)
            for row in change.rows.to_pylist():
                key = row["k"], row["c"]
                total[key] = total.get(key, 0) + row["mz_diff"]
            assert {n for n in total.values()} <= {0, 1}
            if sum(c for (_, c), n in total.items() if n) == 40:
                break
    for writer in writers:
        writer.join()
    assert sorted(k for k, n in total.items() if n) == sorted(db.sql(query).fetchall())


def test_subscription_goes_on_after_its_last_progress(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (n int)")
    with db.subscribe(name) as changes:
        time = next(changes).time
    db.execute(f"INSERT INTO {name} VALUES (1)")
    with db.subscribe(name, snapshot=False, as_of=time) as changes:
        later = next(changes)
    assert isinstance(later, Changes)
    assert (later.snapshot, later.rows.to_pylist()) == (False, [{"mz_diff": 1, "n": 1}])


def test_subscription_outlives_its_server(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    first = foreshore.open(tmp_path, listen=listen)
    first.execute("CREATE TABLE t (n int)")
    first.execute("INSERT INTO t VALUES (1)")
    assert first.url is not None
    with foreshore.connect(first.url) as db, db.subscribe("t") as changes:
        found: Counter[int] = Counter()

        def read(wanted: int) -> None:
            while found != Counter(range(1, wanted + 1)):
                event = next(changes)
                assert isinstance(event, Changes)
                assert not event.removed.num_rows
                found.update(event.added.column("n").to_pylist())

        read(1)
        for n in (2, 4):
            first.execute(f"INSERT INTO t VALUES ({n})")
            server = first._database._server
            assert server is not None
            os.kill(server.pid, signal.SIGKILL)
            first.close()
            first = foreshore.open(tmp_path, listen=listen)
            first.execute(f"INSERT INTO t VALUES ({n + 1})")
            read(n + 1)
    first.close()


def test_subscription_ends_with_the_error_of_the_data(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (n int)")
    with db.subscribe(f"SELECT 1 / n AS x FROM {name}") as changes:
        next(changes)
        db.execute(f"INSERT INTO {name} VALUES (0)")
        with pytest.raises(DatabaseError, match="division by zero"):
            next(changes)


def test_subscription_is_an_asynchronous_iterator_too(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (n int)")

    async def first() -> foreshore.embedded.subscription.Event:
        with db.subscribe(name) as changes:
            async for change in changes:
                return change
        raise AssertionError

    found = asyncio.run(first())
    assert isinstance(found, Changes)
    assert found.snapshot


def test_second_owner_is_refused_and_connects(db: Database, tmp_path: Path) -> None:
    directory = db._database._address.directory
    assert directory is not None
    with pytest.raises(LockFileExists, match="is in use by another server") as raised:
        foreshore.open(directory)
    assert f"process {db._database._server.pid} on host" in str(raised.value.detail)  # type: ignore[union-attr]
    assert "foreshore.connect(" in str(raised.value.hint)
    shown = "".join(traceback.format_exception(raised.value))
    assert "\nHINT:  Use it by foreshore.connect(" in shown
    with foreshore.connect(directory) as other:
        assert other.sql("SELECT 1").scalar() == 1
    with pytest.raises(DatabaseError, match="no server serves directory"):
        foreshore.connect(tmp_path)


def test_socket_is_for_its_owner_alone(db: Database) -> None:
    directory = db._database._address.directory
    assert directory is not None
    assert (directory / ".s.PGSQL.6875").stat().st_mode & 0o777 == 0o600


def test_directory_is_opened_again_with_what_was_committed(tmp_path: Path) -> None:
    place = tmp_path / ("long" * 40) / "data"
    with foreshore.open(place, listen="127.0.0.1:0") as db:
        db.register("t", {"a": [1, 2]})
        assert db.url is not None
        with psycopg.connect(db.url) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
        with foreshore.connect(db.url) as other:
            assert len(other.sql("TABLE t")) == 2
    with pytest.raises(NotReceived, match="closed"):
        db.sql("SELECT 1")
    assert not (place / ".s.PGSQL.6875").exists()
    with foreshore.open(place) as db:
        assert sorted(db.sql("TABLE t")) == [(1,), (2,)]


def test_killed_server_is_an_error_that_says_so(tmp_path: Path) -> None:
    with foreshore.open(tmp_path / "data") as db:
        db.execute("CREATE TABLE t (a int)")
        server = db._database._server
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: server.status is not None, "the server has ended")
        with pytest.raises(NotReceived, match="has ended with status -9"):
            db.sql("TABLE t")
    with foreshore.open(tmp_path / "data") as db:
        assert db.sql("TABLE t").fetchall() == []


def test_server_ends_with_its_process(tmp_path: Path) -> None:
    code = f"""
import foreshore, os, time
db = foreshore.open({str(tmp_path / "data")!r})
db.execute("CREATE TABLE t AS SELECT 1 AS a")
if (child := os.fork()) == 0:
    time.sleep(600)  # a copy of the process, with its descriptors, outlives it
print(child, db._database._server.pid, flush=True)
os._exit(9)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child, server = map(int, process.stdout.readline().split())
    try:
        assert process.wait(60) == 9
        until(lambda: not Path(f"/proc/{server}").exists(), "the server has ended")
    finally:
        os.kill(child, signal.SIGKILL)
    with foreshore.open(tmp_path / "data") as db:
        assert db.sql("TABLE t").scalar() == 1


def test_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "pg_hba.conf").write_text("nonsense\n")
    with pytest.raises(Unavailable, match="pg_hba.conf"):
        foreshore.open(tmp_path)


def test_asynchronous_object(tmp_path: Path) -> None:
    async def work() -> None:
        async with await foreshore.open_async(tmp_path / "data") as db:
            await db.execute("CREATE TABLE t (n int)")

            async def insert(n: int) -> None:
                async with db.transaction():
                    await db.execute("INSERT INTO t VALUES ($1)", [n])

            seen: list[int] = []

            async def follow() -> None:
                async for change in db.subscribe("t"):
                    assert isinstance(change, Changes)
                    seen.extend(change.rows.column("n").to_pylist())
                    if len(seen) == 5:
                        return

            following = asyncio.create_task(follow())
            await asyncio.gather(*(insert(n) for n in range(5)))
            await asyncio.wait_for(following, 60)
            assert sorted(seen) == list(range(5))
            assert len([b async for b in db.stream("TABLE t")]) >= 1
            async with await foreshore.connect_async(tmp_path / "data") as other:
                assert (await other.sql("SELECT count(*) FROM t")).scalar() == 5

    asyncio.run(work())


def test_stream_that_nobody_reads_ends_on_any_thread(db: Database) -> None:
    def leave() -> None:
        reader = db.stream("SELECT * FROM generate_series(1, 1000000) x")
        reader.read_next_batch()
        cycle: list[object] = [reader]
        cycle.append(cycle)

    async def collect() -> None:
        gc.collect()  # on the thread of the loop

    leave()
    db._loop.wait(collect())
    assert db.sql("SELECT 1").scalar() == 1


def test_close_ends_what_is_left(tmp_path: Path) -> None:
    db = foreshore.open(tmp_path / "data")
    db.execute("CREATE TABLE t (a int)")
    changes = db.subscribe("t")
    assert next(changes).time
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(next, changes, None)
        db.close()
        assert waiting.result(60) is None


def test_frames_of_polars_come_and_go(db: Database, name: str) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "c": polars.Series(["u", None], dtype=polars.Categorical),
            "e": polars.Series(["a", "b"], dtype=polars.Enum(["a", "b"])),
            "b": [b"x", None],
            "l": [[1], [2, 3]],
        }
    )
    assert db.register(name, frame) == 2
    found = db.sql(f"SELECT * FROM {name}").pl().with_columns(polars.col("c", "e").cast(str))
    assert found.equals(frame.with_columns(polars.col("c", "e").cast(str)))


def test_register_replaces_a_table_that_has_other_columns(db: Database, name: str) -> None:
    frame = pd.DataFrame({"k": ["a"], "n": [1]})
    db.register(name, frame)
    frame["n"] = 2  # a copy was made
    assert db.sql(f"SELECT n FROM {name}").scalar() == 1
    frame["more"] = 0.5
    assert db.register(name, frame, if_exists="replace") == 1
    assert db.sql(f"SELECT * FROM {name}").fetchall() == [("a", 2, 0.5)]
    db.execute(f"CREATE VIEW {name}_v AS SELECT n FROM {name}")
    with pytest.raises(DatabaseError, match="other objects depend on it"):
        db.register(name, frame[["k"]], if_exists="replace")
    assert db.sql(f"SELECT * FROM {name}_v").scalar() == 2


def test_subscription_ends_while_another_thread_waits(db: Database, name: str) -> None:
    db.execute(f"CREATE TABLE {name} (n int)")
    changes = db.subscribe(name)
    first = next(changes)
    with ThreadPoolExecutor(1) as other:
        rest = other.submit(list, changes)
        changes.close()
        assert rest.result(60) == []
    assert isinstance(first, Changes)


def test_close_ends_loops_of_subscriptions_and_calls_of_other_threads(tmp_path: Path) -> None:
    with foreshore.open(tmp_path / "data") as opened, ThreadPoolExecutor(2) as others:
        opened.execute("CREATE TABLE t (n int)")
        changes = opened.subscribe("t")
        assert isinstance(next(changes), Changes)
        sleeping = others.submit(opened.sql, "SELECT pg_sleep(1000)")
        with opened.session() as beside:
            active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(' || '%'"
            until(lambda: beside.sql(active).scalar() > 0, "the statement runs")
        opened.close()
        assert list(changes) == []  # none has waited
        with pytest.raises(NotReceived, match="the database is closed"):
            sleeping.result(60)


def test_rows_that_a_table_would_round_leave_it_as_it_is(db: Database, name: str) -> None:
    db.register(name, {"n": [1, 2]})
    for how in ("append", "replace"):
        with pytest.raises(DatabaseError, match=r"1\.5"):
            db.register(name, {"n": [1.5]}, if_exists=how)
        assert db.sql(f"SELECT n FROM {name} ORDER BY n").fetchall() == [(1,), (2,)]


@pytest.mark.usefixtures("interruptible")
def test_interrupt_ends_the_statement_only(db: Database) -> None:
    running = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE state = 'active' AND query LIKE '%pg_sleep(' || '1000)%'"
    )
    beside = db.session()

    def interrupt() -> None:
        until(lambda: beside.sql(running).scalar() > 0, "the statement runs")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        db.sql("SELECT pg_sleep(1000)")
    thread.join()
    until(lambda: beside.sql(running).scalar() == 0, "the statement has ended")
    assert db.sql("SELECT 1").scalar() == 1
    beside.close()


@pytest.mark.usefixtures("interruptible")
def test_interrupt_of_a_thread_that_cannot_see_it_ends_the_wait() -> None:
    def interrupt() -> None:  # as when it comes just before the main thread waits for a lock
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def wait() -> None:
        threading.Timer(0.1, interrupt).start()
        _result(Future())

    with pytest.raises(KeyboardInterrupt):
        wait()


def test_other_processes_are_told_to_connect(db: Database) -> None:
    with pytest.raises(TypeError, match=r"foreshore\.connect"):
        pickle.dumps(db)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            db.close()  # it is the parent's
            db.sql("SELECT 1")
        except DatabaseError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"before a fork" in os.read(read, 1000)
    assert db.sql("SELECT 1").scalar() == 1
    os.close(read)
    os.close(write)


def test_database_without_a_path_is_removed_in_the_end() -> None:
    code = (
        "import foreshore; db = foreshore.open(); db.register('t', [{'a': 1}]);"
        " print(repr(db).split()[1], db.sql('TABLE t').scalar(), foreshore.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    path, value, version = done.stdout.split()
    assert (value, version) == ("1", foreshore.__version__)
    assert not Path(path).parent.exists()


def test_asynchronous_database_is_a_context_and_ends_its_subscriptions(
    db: Database, name: str
) -> None:
    db.execute(f"CREATE TABLE {name} (n int)")
    path = repr(db).split()[1]

    async def main() -> None:
        async with foreshore.connect_async(path) as other:
            changes = other.subscribe(name)
            assert isinstance(await anext(changes), Changes)
            rest = asyncio.create_task(_all(changes))
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert await rest == []
        with pytest.raises(NotReceived, match="closed"):
            await other.sql("SELECT 1")

    asyncio.run(main())


async def _all(changes: AsyncIterator[Event]) -> list[Event]:
    return [each async for each in changes]
