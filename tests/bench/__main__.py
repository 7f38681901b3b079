"""Figures as ratios against PostgreSQL 15 in one run: `make bench`, or `python -m tests.bench NAME`.

Each pair is measured in turns (ours, theirs, ours, theirs, ...), so that a machine whose speed
drifts slows both; what is printed is the median of each and the median of the ratios of the turns.
PostgreSQL has its default durability and its default configuration.
"""

from __future__ import annotations

import io
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import psycopg
import pyarrow.csv
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from foreshore.server.demo.history import History
from foreshore.server.demo.schema import TABLES, VIEWS
from tests.bench import drivers, forms, objects, reflection, subscribe
from tests.bench.freshness import as_csv
from tests.bench.freshness import serving as unguarded
from tests.bench.tpch import SCHEMA, tables
from tests.harness import (
    Server,
    initialised_postgres,
    postgres,
    program,
    running_postgres,
    serving,
)

TURNS = 3
SECONDS = 5

POINT = "\\set k random(1, 16)\nSELECT * FROM by_carrier WHERE k = :k;\n"
INSERT = "INSERT INTO commits VALUES (1, 'some text');\n"
# The transaction of pgbench's own tables, at scale 1.
TPCB = """
\\set aid random(1, 100000)
\\set bid random(1, 1)
\\set tid random(1, 10)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
    VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""
TPCB_TABLES = (
    "CREATE TABLE pgbench_history"
    " (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
    "CREATE TABLE pgbench_tellers"
    " (tid int NOT NULL PRIMARY KEY, bid int, tbalance int, filler char(84))",
    "CREATE TABLE pgbench_accounts"
    " (aid int NOT NULL PRIMARY KEY, bid int, abalance int, filler char(84))",
    "CREATE TABLE pgbench_branches (bid int NOT NULL PRIMARY KEY, bbalance int, filler char(88))",
    "INSERT INTO pgbench_branches (bid, bbalance) SELECT 1, 0",
    "INSERT INTO pgbench_tellers (tid, bid, tbalance) SELECT g, 1, 0 FROM generate_series(1, 10) g",
    "INSERT INTO pgbench_accounts (aid, bid, abalance, filler)"
    " SELECT g, 1, 0, '' FROM generate_series(1, 100000) g",
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of both; `higher` says whether more is better."""

    name: str
    unit: str
    ours: list[float]
    theirs: list[float]
    higher: bool

    def row(self) -> str:
        """Return the figure as a row of the table; a ratio above 1 is in our favour."""
        ratios = [
            ours / theirs if self.higher else theirs / ours
            for ours, theirs in zip(self.ours, self.theirs, strict=bool(self.theirs))
        ]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
        theirs = f"{statistics.median(self.theirs):,.4g}" if self.theirs else "-"
        return f"| {self.name} | {statistics.median(self.ours):,.4g} | {theirs} | {self.unit} | {ratio} |"


def in_turns(
    name: str,
    unit: str,
    ours: Callable[[], float],
    theirs: Callable[[], float] | None,
    *,
    higher: bool,
    turns: int = TURNS,
) -> Figure:
    """Measure both in turns."""
    figure = Figure(name, unit, [], [], higher)
    for _ in range(turns):
        figure.ours.append(ours())
        if theirs is not None:
            figure.theirs.append(theirs())
    return figure


def pgbench(url: str, script: str, connections: int) -> float:
    """Return the transactions a second of `script` over some connections, prepared."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(
            [
                *(program("pgbench"), "-n", "-M", "prepared", "-c", str(connections)),
                *("-j", "1", "-T", str(SECONDS), "-f", file.name, url),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps = "))
    return float(line.split()[2])


def rates(name: str, script: str, server: Server, url: str, counts: Sequence[int]) -> list[Figure]:
    """Measure the transactions a second of `script`, over each of so many connections."""
    return [
        in_turns(
            f"{name}, {n} connection{'s' * (n > 1)}",
            "1/s",
            partial(pgbench, server.url, script, n),
            partial(pgbench, url, script, n),
            higher=True,
        )
        for n in counts
    ]


@contextmanager
def both() -> Iterator[tuple[Server, str]]:
    """Run a Foreshore, without the tests' guard, and a PostgreSQL, with the same tables in both."""
    with unguarded() as server, postgres() as url:
        yield server, url


def flights_csv() -> bytes:
    """Return all flights as they were in the end, as CSV."""
    table = History().known_at(datetime(2014, 2, 1))
    out = io.BytesIO()
    pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(include_header=False))
    return out.getvalue()


def execute(url: str, *statements: str) -> None:
    """Run statements, each its own transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def copy_in(url: str, data: bytes, times: int = 1) -> float:
    """Return the seconds it takes to copy the flights, `times` over, into an empty table."""
    execute(
        url, "DROP TABLE IF EXISTS flights CASCADE", f"CREATE TABLE flights ({TABLES['flights']})"
    )
    columns = (
        "id, carrier, flight, tailnum, origin, dest, distance, sched_dep, time_hour, dep, arr,"
        " dep_delay, arr_delay, air_time"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        began = time.perf_counter()
        with connection.cursor().copy(
            f"COPY flights ({columns}) FROM STDIN (FORMAT csv)".encode()
        ) as copy:
            for _ in range(times):
                for offset in range(0, len(data), 1 << 20):
                    copy.write(data[offset : offset + (1 << 20)])
        return time.perf_counter() - began


def point_selects(server: Server, url: str) -> list[Figure]:
    """Prepared look-ups of one row by key in an indexed view."""
    setup = (
        "CREATE TABLE carriers (k int, name text)",
        "INSERT INTO carriers SELECT g, 'carrier ' || g FROM generate_series(1, 16) g",
        "CREATE TABLE trips (k int, delay int)",
        "INSERT INTO trips SELECT g % 16 + 1, g % 60 FROM generate_series(1, 100000) g",
    )
    view = "SELECT c.k, c.name, count(*) AS trips, sum(t.delay) AS delay FROM carriers c JOIN trips t ON t.k = c.k GROUP BY c.k, c.name"
    execute(
        server.url, *setup, f"CREATE VIEW by_carrier AS {view}", "CREATE INDEX ON by_carrier (k)"
    )
    execute(
        url,
        *setup,
        f"CREATE MATERIALIZED VIEW by_carrier AS {view}",
        "CREATE INDEX ON by_carrier (k)",
    )
    execute(server.url, "SELECT * FROM by_carrier")
    return rates("prepared point select on an indexed view", POINT, server, url, (1, 8))


def commits(server: Server, url: str) -> list[Figure]:
    """Single-row INSERTs, each its own durable commit."""
    for each in (server.url, url):
        execute(each, "CREATE TABLE commits (i int, t text)")
    return rates("single-row INSERT commits", INSERT, server, url, (1, 16, 64))


def tpcb(server: Server, url: str) -> list[Figure]:
    """pgbench's transactions "like TPC-B": three rows by key, all in one branch, and a history."""
    for each in (server.url, url):
        execute(each, *TPCB_TABLES)
    figures = rates("tpcb-like transactions", TPCB, server, url, (1, 4, 16))
    for each in (server.url, url):
        with psycopg.connect(each) as connection:
            sums = connection.execute("""
                SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                    (SELECT sum(tbalance) FROM pgbench_tellers),
                    (SELECT sum(bbalance) FROM pgbench_branches),
                    (SELECT sum(delta) FROM pgbench_history)""").fetchone()
        assert sums is not None
        assert len(set(sums)) == 1, sums  # nothing was lost
    return figures


def copies(server: Server, url: str) -> list[Figure]:
    """COPY of 336,776 flights into a table without indexes."""
    data = flights_csv()
    return [
        in_turns(
            "COPY of the flights",
            "s",
            lambda: copy_in(server.url, data),
            lambda: copy_in(url, data),
            higher=False,
        )
    ]


def rows_out(server: Server, url: str) -> list[Figure]:
    """A million rows of TPC-H's lineitem, read by COPY and through portals: processor time."""
    query = "SELECT * FROM lineitem LIMIT 1000000"
    lines = [as_csv(part) for part in tables(0.17)["lineitem"].to_batches(max_chunksize=100_000)]
    for each in (server.url, url):
        with psycopg.connect(each, autocommit=True) as connection:
            connection.execute(SCHEMA["lineitem"].encode())
            with connection.cursor().copy("COPY lineitem FROM STDIN (FORMAT csv)") as copy:
                for part in lines:
                    copy.write(part)

    def seconds(cpu: Callable[[int], float], each: str, read: Callable[[PGconn], None]) -> float:
        with psycopg.connect(each, autocommit=True) as connection:
            connection.execute("SELECT 1")
            pid = connection.info.backend_pid
            before = cpu(pid)
            read(connection.pgconn)
            return cpu(pid) - before

    def ours(_: int) -> float:
        return sum(map(ticks_of, server.processes())) / os.sysconf("SC_CLK_TCK")

    def theirs(pid: int) -> float:
        return ticks_of(pid) / os.sysconf("SC_CLK_TCK")

    def copied(form: str) -> Callable[[PGconn], None]:
        def read(connection: PGconn) -> None:
            connection.exec_(f"COPY ({query}) TO STDOUT (FORMAT {form})".encode())
            while connection.get_copy_data(0)[0] > 0:
                continue
            while connection.get_result() is not None:
                continue

        return read

    def selected(format: int) -> Callable[[PGconn], None]:
        def read(connection: PGconn) -> None:
            connection.send_query_params(query.encode(), None, result_format=format)
            connection.set_single_row_mode()
            while (found := connection.get_result()) is not None:
                assert found.status in (ExecStatus.SINGLE_TUPLE, ExecStatus.TUPLES_OK), found

        return read

    ways = {f"COPY in {form}": copied(form) for form in ("text", "csv", "binary")}
    ways |= {"SELECT in text": selected(0), "SELECT in binary": selected(1)}
    return [
        in_turns(
            f"a million rows out by {name}",
            "s",
            partial(seconds, ours, server.url, read),
            partial(seconds, theirs, url, read),
            higher=False,
        )
        for name, read in ways.items()
    ]


def ticks_of(pid: int) -> int:
    """Return the processor time of a process, in the system's ticks."""
    found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(found[11]) + int(found[12])


def large() -> Iterator[Figure]:
    """COPY of five million rows, and starts to the first answer over ten million."""
    data = flights_csv()
    times = 5_000_000 // data.count(b"\n") + 1
    query = "SELECT count(*), max(arr_delay) FROM flights"

    def first_answer(start: AbstractContextManager[object], url: Callable[[], str]) -> float:
        began = time.perf_counter()
        with start:
            execute(url(), query)
            return time.perf_counter() - began

    with (
        tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder,
        initialised_postgres() as theirs,
    ):
        server = Server(Path(folder) / "data")
        address = ""

        @contextmanager
        def ours(*, killed: bool) -> Iterator[None]:
            server.start()
            try:
                yield
            finally:
                server.kill() if killed else server.stop()

        @contextmanager
        def postgres_of(end: signal.Signals) -> Iterator[None]:
            nonlocal address
            with running_postgres(theirs, end) as address:
                yield

        with ours(killed=False), postgres_of(signal.SIGINT):
            yield in_turns(
                "COPY of 5 million rows",
                "s",
                lambda: copy_in(server.url, data, times),
                lambda: copy_in(address, data, times),
                higher=False,
            )
            for url in (server.url, address):
                execute(url, "INSERT INTO flights SELECT * FROM flights")
        for killed, name in ((False, "after a clean end"), (True, "after a kill")):
            end = signal.SIGQUIT if killed else signal.SIGINT
            with ours(killed=killed), postgres_of(end):
                for url in (server.url, address):  # something to recover
                    execute(url, "DELETE FROM flights WHERE id % 1000 = 0", query)
            yield in_turns(
                f"start to the first answer over 10 million rows, {name}",
                "s",
                lambda killed=killed: first_answer(ours(killed=killed), lambda: server.url),  # type: ignore[misc]
                lambda end=end: first_answer(postgres_of(end), lambda: address),  # type: ignore[misc]
                higher=False,
            )


def freshness(server: Server, url: str) -> list[Figure]:
    """From a commit to a correct read of a view over all flights; PostgreSQL refreshes its view."""
    data = flights_csv()
    for each in (server.url, url):
        copy_in(each, data)
        execute(
            each,
            "DROP TABLE IF EXISTS airlines CASCADE",
            f"CREATE TABLE airlines ({TABLES['airlines']})",
        )
        execute(
            each, "INSERT INTO airlines SELECT DISTINCT carrier, 'airline ' || carrier FROM flights"
        )
    query = VIEWS["delay_by_airline"]
    execute(
        server.url,
        f"CREATE VIEW fresh AS {query}",
        "CREATE INDEX ON fresh (airline)",
        "SELECT * FROM fresh",
    )
    execute(url, f"CREATE MATERIALIZED VIEW fresh AS {query}")

    def seconds(address: str, rows: int, refresh: bool) -> float:
        with psycopg.connect(address, autocommit=True) as connection:
            before = connection.execute("SELECT sum(flights) FROM fresh").fetchone()
            connection.execute(
                "INSERT INTO flights SELECT * FROM flights WHERE dep IS NOT NULL LIMIT %s", (rows,)
            )
            committed = time.perf_counter()
            if refresh:
                connection.execute("REFRESH MATERIALIZED VIEW fresh")
            after = connection.execute("SELECT sum(flights) FROM fresh").fetchone()
            seconds = time.perf_counter() - committed
            assert before is not None
            assert after == (before[0] + rows,), "the view is not fresh"
            return seconds

    return [
        in_turns(
            f"commit to a correct read of a join and group view, {rows:,} changed row{'s' * (rows > 1)}",
            "s",
            lambda rows=rows: seconds(server.url, rows, False),  # type: ignore[misc]
            lambda rows=rows: seconds(url, rows, True),  # type: ignore[misc]
            higher=False,
            turns=5,
        )
        for rows in (1, 10_000)
    ]


def starts() -> Iterator[Figure]:
    """From the start of the process to the first answer, that of a sum over a table."""
    setup = ("CREATE TABLE t (i int)", "INSERT INTO t VALUES (1)")
    query = "SELECT sum(i) FROM t"

    def seconds(start: AbstractContextManager[str], *statements: str) -> float:
        began = time.perf_counter()
        with start as url:
            execute(url, *statements)
            return time.perf_counter() - began

    @contextmanager
    def fresh() -> Iterator[str]:
        with (
            tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder,
            serving(Path(folder) / "data") as server,
        ):
            yield server.url

    yield in_turns(
        "start on an empty directory to the first answer",
        "s",
        lambda: seconds(fresh(), *setup, query),
        lambda: seconds(postgres(), *setup, query),
        higher=False,
    )
    with (
        tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder,
        initialised_postgres() as theirs,
    ):
        data = Path(folder) / "data"
        with serving(data) as server:
            execute(server.url, *setup)
        with running_postgres(theirs) as url:
            execute(url, *setup)

        @contextmanager
        def again() -> Iterator[str]:
            with serving(data) as server:
                yield server.url

        yield in_turns(
            "start on a directory with data to the first answer",
            "s",
            lambda: seconds(again(), query),
            lambda: seconds(running_postgres(theirs), query),
            higher=False,
        )
        with serving(data) as server:
            execute(server.url, "CREATE CLUSTER spark (SIZE = 'spark')")
        yield in_turns(
            "start on a directory with data to the first answer computed on Spark",
            "s",
            lambda: seconds(again(), "SET cluster = spark", query),
            lambda: seconds(running_postgres(theirs), query),
            higher=False,
        )


GROUPS = {
    "point": point_selects,
    "commits": commits,
    "tpcb": tpcb,
    "copy": copies,
    "out": rows_out,
    "fresh": freshness,
}


def main(names: list[str]) -> None:
    """Measure the groups of these names, or all."""
    if names[:1] == ["subscribe"]:
        subscribe.main(names[1:])
        return
    for each, run in {"asyncpg": drivers, "forms": forms, "reflection": reflection}.items():
        if names[:1] == [each]:
            run.main(names[1:])
            return
    if names[:1] == ["objects"]:
        objects.main([int(name) for name in names[1:]] or [500, 5_000])
        return
    print(
        "| what | Foreshore | PostgreSQL 15 | unit | ratio, above 1 in our favour |\n|---|---|---|---|---|"
    )
    for name, group in GROUPS.items():
        if not names or name in names:
            with both() as (server, url):
                for figure in group(server, url):
                    print(figure.row(), flush=True)
    for name, own in {"start": starts, "large": large}.items():
        if not names or name in names:
            for figure in own():
                print(figure.row(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
