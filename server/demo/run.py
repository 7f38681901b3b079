"""`foreshore demo`: start a server, load the demo's data into it, and replay the year."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from foreshore.extras import INSTALL, is_spark_installed
from foreshore.processes.file_modes import operators_umask
from foreshore.server.demo import schema
from foreshore.server.demo.history import DIMENSIONS, History
from foreshore.server.demo.replay import advance

READY = "foreshore ready: "
ROWS_PER_CHUNK = 20_000


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)


def run_demo(
    serve_args: Sequence[str], *, start: datetime, speed: float, tick_interval: str, spark: bool
) -> int:
    """Serve with `serve_args`, load the demo if it is not there, replay; return an exit status.

    `speed` is in seconds of 2013 for each second of real time. The demo ends with the server, or at
    SIGINT or SIGTERM, and then ends the server. So does the lifeline if the demo is killed.
    """
    command = [sys.executable, "-m", "foreshore.server.main", "serve", "--lifeline", *serve_args]
    server: subprocess.Popen[str] | None = None
    asked_to_end = False

    def end(*_: object) -> None:
        nonlocal asked_to_end
        asked_to_end = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    try:
        server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            umask=operators_umask(),
            start_new_session=True,  # an interrupt from the terminal reaches the demo only
        )
        url = _wait_until_ready(server)
        with psycopg.connect(
            url, password=os.environ.get("FORESHORE_PASSWORD"), autocommit=True
        ) as connection:
            history = History()
            if not _is_loaded(connection):
                _load(connection, history, start)
            _create_views(connection, spark=spark, tick_interval=tick_interval)
            _invite(url, speed, spark=spark and is_spark_installed())
            _replay(connection, history, server, speed)
        return _outcome(server)
    except KeyboardInterrupt:
        return 0
    except RuntimeError:  # DuckDB turns an exception of a signal handler into this
        if not asked_to_end:
            raise
        return 0
    except psycopg.OperationalError:
        if server is None or not _ends(server):
            raise
        return _outcome(server)
    finally:
        if server is not None:  # else Popen failed, or its lifeline ends it
            server.terminate()
            server.wait()


def _wait_until_ready(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    for line in server.stdout:
        say(line.rstrip())
        if line.startswith(READY):
            threading.Thread(target=_pass_on, args=(server.stdout,), daemon=True).start()
            return line.removeprefix(READY).strip()
    raise SystemExit(server.wait() or 1)


def _pass_on(lines: Iterable[str]) -> None:
    for line in lines:
        say(line.rstrip())


def _outcome(server: "subprocess.Popen[str]") -> int:
    """Print how the server has ended by itself; return its status as a shell shows it."""
    status = server.wait()
    how = f", killed by signal {-status}" if status < 0 else ""
    say(f"the server has ended{how}; what was committed is there when it runs again")
    return 128 - status if status < 0 else status


def _ends(server: "subprocess.Popen[str]") -> bool:
    """Whether the server ends within 30 s; connections may be lost before it has ended."""
    try:
        server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        return False
    return True


def _exists(connection: psycopg.Connection[Any], kind: str, name: str) -> bool:
    row = connection.execute(
        "SELECT count(*) FROM mz_catalog.mz_objects WHERE type = %s AND name = %s", (kind, name)
    ).fetchone()
    return row is not None and row[0] > 0


def _is_loaded(connection: psycopg.Connection[Any]) -> bool:
    """Whether the demo is loaded in full: the clock is written last."""
    if not _exists(connection, "table", "demo_clock"):
        return False
    row = connection.execute("SELECT count(*) FROM demo_clock").fetchone()
    return row is not None and row[0] > 0


def _load(connection: psycopg.Connection[Any], history: History, start: datetime) -> None:
    for table, columns in schema.TABLES.items():
        if _exists(connection, "table", table):
            connection.execute(sql.SQL("DROP TABLE {} CASCADE").format(sql.Identifier(table)))
        connection.execute(f"CREATE TABLE {table} ({columns})".encode())
    for table in DIMENSIONS:
        _copy(connection, table, history.dimension(table))
    _copy(connection, "flights", history.known_at(start))
    connection.execute("INSERT INTO demo_clock VALUES (%s::timestamp)", (str(start),))


def _copy(connection: psycopg.Connection[Any], table: str, rows: pa.Table) -> None:
    began = time.monotonic()
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    )
    with connection.cursor().copy(statement) as copy:
        for offset in range(0, rows.num_rows, ROWS_PER_CHUNK):
            chunk = io.BytesIO()
            options = pyarrow.csv.WriteOptions(include_header=False)
            pyarrow.csv.write_csv(rows.slice(offset, ROWS_PER_CHUNK), chunk, options)
            copy.write(chunk.getvalue())
            if rows.num_rows > ROWS_PER_CHUNK:
                done = min(offset + ROWS_PER_CHUNK, rows.num_rows)
                say(f"  {table}: {done:,} of {rows.num_rows:,} rows sent")
    say(f"  {table}: {rows.num_rows:,} rows in {time.monotonic() - began:.1f} s")


def _create_views(connection: psycopg.Connection[Any], *, spark: bool, tick_interval: str) -> None:
    if not _exists(connection, "view", "delay_by_airline"):
        for statement in schema.embedded_views():
            connection.execute(statement.encode())
        say(f"  views: {', '.join(schema.VIEWS)}")
    clusters = connection.execute("SELECT name FROM mz_catalog.mz_clusters").fetchall()
    if spark and not is_spark_installed():
        say("  Spark is not installed, so its views are left out; for these: " + INSTALL)
    elif spark and ("spark",) not in clusters:
        for statement in schema.spark_views(tick_interval):
            connection.execute(statement.encode())
        say("  the same views on the cluster spark, in schema spark, filled in the background:")
        say("  that takes a minute or two; a query of one waits until it is there")


def _invite(url: str, speed: float, *, spark: bool) -> None:
    say(f"\nThe year 2013 goes on at {speed:g} times its pace. Try, twice:\n")
    say(f"  psql {url} -c 'SELECT count(*) FROM in_the_air'")
    say(f"  psql {url} -c 'SELECT * FROM worst_routes ORDER BY arrival_delay DESC'")
    say(f"  psql {url} -c 'COPY (SUBSCRIBE TO delay_by_airline WITH (SNAPSHOT = false)) TO STDOUT'")
    if spark:
        say(f"  psql {url} -c 'SELECT * FROM spark.delay_by_month ORDER BY month'")
    say("\nThe console that is named above opens in a browser.")
    say(f"The database listens at {url}; end it with Ctrl-C.\n")


def _replay(
    connection: psycopg.Connection[Any],
    history: History,
    server: "subprocess.Popen[str]",
    speed: float,
) -> None:
    """Advance the database's moment once a second until the year or the server ends."""
    row = connection.execute("SELECT max(moment) FROM demo_clock").fetchone()
    assert row is not None
    moment: datetime = row[0]
    last = history.last()
    events, spoken, before = 0, time.monotonic(), time.monotonic()
    while moment < last and server.poll() is None:
        now = time.monotonic()
        moment = min(last, moment + timedelta(seconds=(now - before) * speed))
        before = now
        events += advance(connection, history, moment)
        if now - spoken >= 30:
            say(f"  {moment:%Y-%m-%d %H:%M}: {events:,} events replayed")
            spoken = now
        time.sleep(max(0.0, 1.0 - (time.monotonic() - now)))
    if server.poll() is None:
        say("  the year is over; the database goes on")
