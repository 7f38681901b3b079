"""Subscriptions of real clients: many at once, in every protocol, over a kill, on Spark."""

from __future__ import annotations

import asyncio
import struct
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.adapter.subscribe.replay import Replay, Row
from tests.harness import Server, indexed, until
from tests.wire.raw import Raw

FOLLOWERS = 100


def metric(server: Server, name: str) -> float:
    """Return a metric of the server."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def fetched(connection: psycopg.Connection[Any], cursor: str = "c") -> list[Row]:
    return connection.execute(f"FETCH ALL {cursor} WITH (TIMEOUT = '100ms')".encode()).fetchall()


def test_hundred_subscribers_share_one_changelog_and_get_equal_rows(server: Server) -> None:
    async def follow(start: asyncio.Barrier, upto: asyncio.Future[int]) -> list[Row]:
        connection = await psycopg.AsyncConnection.connect(server.url, autocommit=True)
        async with connection, connection.cursor() as cursor:
            text = "COPY (SUBSCRIBE TO crowd_counts WITH (PROGRESS)) TO STDOUT"
            rows: list[Row] = []
            async with cursor.copy(text) as copy:
                copy.set_types(["int8", "bool", "int8", "int4", "int8"])
                async for row in copy.rows():
                    if not rows:
                        is_first_told.set()
                        await start.wait()
                    rows.append(row)
                    if upto.done() and row[1] and row[0] > upto.result():
                        break
                await connection.cancel_safe()
                with pytest.raises(psycopg.errors.QueryCanceled):
                    async for _ in copy:
                        pass
            return rows

    is_first_told = asyncio.Event()

    async def play() -> None:
        loop = asyncio.get_running_loop()
        upto: asyncio.Future[int] = loop.create_future()
        start = asyncio.Barrier(FOLLOWERS + 1)
        async with asyncio.timeout(100):
            # What begins at an earlier time than the first has a changelog of its own.
            followers = [asyncio.create_task(follow(start, upto))]
            await is_first_told.wait()
            followers += [asyncio.create_task(follow(start, upto)) for _ in range(1, FOLLOWERS)]
            await start.wait()
            with server.connect() as connection:
                assert metric(server, "foreshore_changelogs") == 1
                assert metric(server, "foreshore_subscriptions") == FOLLOWERS
                for i in range(20):
                    await asyncio.to_thread(
                        connection.execute, "INSERT INTO crowd VALUES (%s)", (i % 3,)
                    )
                await asyncio.to_thread(connection.execute, "DELETE FROM crowd WHERE k = 1")
                last = connection.execute("SELECT mz_now()::text").fetchone()
                assert last is not None
                upto.set_result(int(last[0]))
                told = await asyncio.gather(*followers)
        changes = [tuple(row for row in rows if not row[1]) for rows in told]
        last_times = {rows[0][0] for rows in told}
        for rows in told:
            replay = Replay(None, 2)
            replay.take(rows)
            assert replay.rows == Counter({(0, 7): 1, (2, 6): 1, (9, 1): 1})
        begun = max(last_times)
        later = {tuple(row for row in each if row[0] > begun) for each in changes}
        assert len(later) == 1, "all heard the same changes"

    with server.connect() as connection:
        connection.execute("CREATE TABLE crowd (k int)")
        connection.execute("INSERT INTO crowd VALUES (9)")
        connection.execute(
            "CREATE VIEW crowd_counts AS SELECT k, count(*) AS n FROM crowd GROUP BY k"
        )
        connection.execute("CREATE INDEX ON crowd_counts (k)")
        indexed(connection, "crowd_counts")
    until(lambda: metric(server, "foreshore_changelogs") == 0, "those of other tests have ended")
    asyncio.run(play())
    until(
        lambda: metric(server, "foreshore_changelogs") == 0,
        "the changelog ends with its last subscriber",
    )


def test_portal_returns_as_many_rows_as_requested(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE portal_rows (i int)")
        connection.execute("INSERT INTO portal_rows SELECT generate_series(1, 20000)")
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE portal_rows")
        seen: list[int] = []
        for count in (1, 10, 9_000, 10_000):
            rows = connection.execute(f"FETCH {count} c WITH (TIMEOUT = '10s')".encode()).fetchall()
            assert len(rows) == count
            seen += [row[2] for row in rows]
        assert connection.execute("FETCH ALL c WITH (TIMEOUT = '0s')").fetchall() != []
        connection.execute("COMMIT")
        assert len(set(seen)) == 19_011
        stream = connection.cursor().stream("SUBSCRIBE portal_rows", size=1)
        streamed = [next(stream)[2] for _ in range(3)]
        assert len(set(streamed)) == 3
        threading.Timer(0.2, connection.cancel).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            for _ in stream:
                pass
        times = connection.execute("SELECT mz_now()::text").fetchone()
        assert times is not None
        with connection.cursor(binary=True) as cursor:
            cursor.execute(
                "SUBSCRIBE (SELECT i FROM portal_rows WHERE i < $1) AS OF %s UP TO %s".replace(
                    "$1", "4"
                ),
                (int(times[0]), int(times[0]) + 1),
            )
            assert sorted(row[2] for row in cursor.fetchall()) == [1, 2, 3]


def test_execute_with_row_limit_stops_there_and_continues(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE limited (i int)")
        connection.execute("INSERT INTO limited VALUES (1), (2), (3)")
        raw = Raw(server.port)
        text = b"SUBSCRIBE limited ENVELOPE UPSERT (KEY (i))"
        raw.send("P", b"\0" + text + b"\0" + struct.pack("!h", 0))
        raw.send("B", b"\0\0" + struct.pack("!hhh", 0, 0, 0))
        raw.send("E", b"\0" + struct.pack("!i", 2))
        raw.send("H")
        assert [code for code, _ in raw.until("s")] == ["1", "2", "D", "D", "s"]
        raw.send("E", b"\0" + struct.pack("!i", 2))
        raw.send("H")
        assert [code for code, _ in raw.until("D")] == ["D"]
        connection.execute("INSERT INTO limited VALUES (4)")
        assert [code for code, _ in raw.until("s")] == ["D", "s"]
        raw.send("S")
        raw.until("Z")
        raw.socket.close()


def test_client_that_does_not_read_blocks_nobody_and_misses_nothing(server: Server) -> None:
    changes, rows = 40, 100  # some 25 MB, of which a tail's log keeps less

    def numbers(raw: Raw) -> Counter[int]:
        """Read a stream until all changes are there; return how often each row came."""
        found: Counter[int] = Counter()
        while found.total() < changes * rows:
            code, body = raw.receive()
            assert code in "Hd", (code, body)
            if code == "d":
                found[int(body.split(b"\t")[2])] += 1
        return found

    with server.connect() as connection:
        connection.execute("CREATE TABLE flood (i int, t text)")
        follow = b"COPY (SUBSCRIBE TO flood) TO STDOUT\0"
        slow, quick = Raw(server.port), Raw(server.port)
        for raw in (slow, quick):
            raw.send("Q", follow)
            raw.until("H")
        reading: list[Counter[int]] = []
        reader = threading.Thread(target=lambda: reading.append(numbers(quick)))
        reader.start()
        for change in range(changes):
            connection.execute(
                "INSERT INTO flood SELECT i, repeat('x', 6000) FROM generate_series(%s::int, %s::int) AS i",
                (change * rows, (change + 1) * rows - 1),
            )
        reader.join(60)
        everything = Counter(range(changes * rows))
        assert reading == [everything], "the other one has heard it all"
        assert numbers(slow) == everything
        slow.socket.close()
        quick.socket.close()


@pytest.mark.full
def test_resume_after_kill_loses_and_repeats_no_change(data_dir: Path) -> None:
    sources = {
        "resumed": ("resumed", 2),
        "resumed_view": ("resumed_view", 2),
        "query": ("(SELECT k % 2 AS k, count(*) AS n FROM resumed GROUP BY 1)", 2),
    }
    server = Server(data_dir).start()
    replays = {name: Replay(None, width) for name, (_, width) in sources.items()}
    written = 0
    try:
        with server.connect() as writer:
            writer.execute("CREATE TABLE resumed (k int, v int)")
            writer.execute(
                "CREATE MATERIALIZED VIEW resumed_view AS SELECT v, count(*) AS n"
                " FROM resumed GROUP BY v"
            )
        for round in range(3):
            connections = {name: server.connect() for name in sources}
            for name, (text, _) in sources.items():
                replay = replays[name]
                resume = (
                    f"WITH (PROGRESS, SNAPSHOT = false) AS OF {replay.resume()}"
                    if round
                    else "WITH (PROGRESS)"
                )
                connections[name].execute("BEGIN")
                connections[name].execute(
                    f"DECLARE c CURSOR FOR SUBSCRIBE {text} {resume}".encode()
                )
            for step in range(8):
                with server.connect() as writer:
                    writer.execute("INSERT INTO resumed VALUES (%s, %s)", (written, written % 4))
                    if written % 3 == 0:
                        writer.execute("DELETE FROM resumed WHERE k = %s", (written - 2,))
                written += 1
                if step == 4 and round < 2:
                    for name in sources:
                        replays[name].take(fetched(connections[name]))
            if round < 2:
                server.kill()
                server.start()
        with server.connect() as reader:
            row = reader.execute("SELECT mz_now()::text").fetchone()
            assert row is not None
            last = int(row[0])
            for name, (text, _) in sources.items():
                replay = replays[name]
                take_until(lambda r=replay: r.frontier > last, connections[name], replay)  # type: ignore[misc]
                query = f"SELECT * FROM {text} AS t AS OF {replay.frontier - 1}"
                found = reader.execute(query.encode()).fetchall()
                assert replay.rows == Counter(found), name
    finally:
        server.stop()


def take_until(
    condition: Callable[[], bool], connection: psycopg.Connection[Any], replay: Replay
) -> None:
    def came() -> bool:
        replay.take(fetched(connection))
        return condition()

    until(came, "the stream goes on")


@pytest.mark.slow
def test_stream_on_spark_is_exact(spark_server: Server) -> None:
    with spark_server.connect() as connection, spark_server.connect() as writer:
        writer.execute("CREATE TABLE sparks (k int, v int)")
        writer.execute("INSERT INTO sparks VALUES (1, 1), (2, 1)")
        connection.execute("SET cluster = spark")
        replays = {None: Replay(None, 2), "UPSERT": Replay("UPSERT", 2)}
        query = "(SELECT v, count(*) AS n FROM sparks GROUP BY v)"
        followers = {}
        for envelope in replays:
            followers[envelope] = spark_server.connect()
            followers[envelope].execute("SET cluster = spark")
            followers[envelope].execute("BEGIN")
            clause = f" ENVELOPE {envelope} (KEY (v))" if envelope else ""
            followers[envelope].execute(
                f"DECLARE c CURSOR FOR SUBSCRIBE {query}{clause} WITH (PROGRESS)".encode()
            )
        for i in range(4):
            writer.execute("INSERT INTO sparks VALUES (%s, %s)", (i, i % 2))
        writer.execute("DELETE FROM sparks WHERE v = 0")
        row = writer.execute("SELECT mz_now()::text").fetchone()
        assert row is not None
        last = int(row[0])

        def told_all() -> bool:
            for envelope, replay in replays.items():
                replay.take(fetched(followers[envelope]))
            return all(each.began and each.frontier > last for each in replays.values())

        until(told_all, "the streams go on", 240)  # Spark may have to start first
        for envelope, replay in replays.items():
            assert replay.rows == Counter({(1, 4): 1})
            followers[envelope].close()
