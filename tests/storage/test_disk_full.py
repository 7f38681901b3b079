"""A really full disk at any point: operations are refused or correct."""

from __future__ import annotations

import itertools
import random
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation
from foreshore.errors import OutOfDisk, OutOfMemory
from tests.harness import START_S, Server, file_sizes, indexed, serving, until
from tests.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.full

LARGE = "INSERT INTO kept SELECT i, repeat(md5(i::text), 10) FROM generate_series(1, 200000) AS i"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 24) as found:
        yield found


@pytest.fixture
def server(disk: SmallDisk) -> Iterator[Server]:
    """Yield a server with a table, an index on it and a materialized view over it."""
    server = disk.server("--segment-bytes", "65536")
    try:
        server.start()
        with server.connect() as connection:
            connection.execute("CREATE TABLE kept (i int, t text)")
            connection.execute(
                "CREATE VIEW parity AS SELECT i % 2 AS p, count(*) AS n FROM kept GROUP BY i % 2"
            )
            connection.execute("CREATE DEFAULT INDEX ON parity")
            connection.execute(
                "CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n, sum(i) AS s FROM kept"
            )
            connection.execute("CREATE SEQUENCE numbers")
            connection.execute("INSERT INTO kept VALUES (1, 'one'), (2, 'two')")
            indexed(connection, "parity")
        yield server
    finally:
        if server.process is not None:
            server.stop()


def refuse(connection: psycopg.Connection[Any], statement: str) -> None:
    """Assert that a statement is refused as PostgreSQL does on a full disk."""
    with pytest.raises(errors.DiskFull, match="No space left on device") as raised:
        connection.execute(statement.encode())
    assert raised.value.diag.message_hint == "Check free disk space."


def copy(connection: psycopg.Connection[Any], rows: int) -> None:
    """Copy incompressible rows of a thousand bytes into the table."""
    texts = [b64encode(random.randbytes(750)).decode() for _ in range(1000)]
    with connection.cursor() as cursor, cursor.copy("COPY kept FROM STDIN") as into:
        for start in range(0, rows, 1000):
            into.write("".join(f"{-i}\t{text}\n" for i, text in enumerate(texts, start)))


def more_than(found: Sized, number: int) -> Callable[[], bool]:
    """Return a condition: `found` has more than `number` elements."""
    return lambda: len(found) > number


def check(connection: psycopg.Connection[Any], *numbers: int) -> None:
    """Assert that the table holds `numbers`, and that its views are correct."""
    found = connection.execute("SELECT i FROM kept ORDER BY i").fetchall()
    assert found == [(i,) for i in sorted(numbers)]
    sums = connection.execute("SELECT n, s FROM sums").fetchall()
    assert sums == [(len(numbers), sum(numbers))]
    parity = connection.execute("SELECT p, n FROM parity ORDER BY p").fetchall()
    odd = sum(i % 2 for i in numbers)
    assert parity == [(p, n) for p, n in ((0, len(numbers) - odd), (1, odd)) if n]


def test_full_disk_refuses_writes_until_there_is_room(disk: SmallDisk, server: Server) -> None:
    with server.connect() as connection, server.connect() as other:
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM kept").fetchall() == [(2,)]
        disk.fill()
        refuse(connection, "INSERT INTO kept SELECT i, 'x' FROM generate_series(10, 5000) AS i")
        refuse(connection, "CREATE TABLE more AS SELECT * FROM generate_series(1, 5000) AS i")
        check(connection, 1, 2)
        assert other.execute("SELECT count(*) FROM kept").fetchall() == [(2,)]
        other.execute("COMMIT")
        disk.make_room()
        connection.execute("INSERT INTO kept VALUES (3, 'three')")
        connection.execute("CREATE TABLE more AS SELECT * FROM generate_series(1, 5000) AS i")
        check(connection, 1, 2, 3)
    server.kill()
    server.start()
    with server.connect() as connection:
        check(connection, 1, 2, 3)
        assert connection.execute("SELECT count(*) FROM more").fetchall() == [(5000,)]


def test_writes_acknowledged_while_disk_fills_survive_kill(disk: SmallDisk, server: Server) -> None:
    """The last record may be torn; no acknowledged record may follow it."""
    sent: set[int] = set()
    acknowledged: set[int] = set()
    refused = threading.Event()
    done = threading.Event()

    def insert(start: int) -> None:
        with server.connect() as connection:
            for i in itertools.count(start, 4):
                if done.is_set():
                    return
                sent.add(i)
                try:
                    connection.execute(
                        "INSERT INTO kept VALUES (%s, repeat('y', %s))", (i, 37 * (i % 200))
                    )
                    acknowledged.add(i)
                except errors.DiskFull:
                    refused.set()
                except psycopg.OperationalError:  # killed
                    return

    disk.fill(leaving=256 << 10)  # less than one compaction needs
    writers = [threading.Thread(target=insert, args=(10 + n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    try:
        assert refused.wait(30)
        for _ in range(3):  # there is a little room, repeatedly
            enough = more_than(acknowledged, len(acknowledged) + 20)
            with server.connect() as connection:
                assert connection.execute("SELECT count(*) FROM kept").fetchone() is not None
            disk.make_room()
            until(enough, "writes go on")
            refused.clear()
            disk.fill(leaving=128 << 10)
            assert refused.wait(30)
        server.kill()
    finally:
        done.set()
        for writer in writers:
            writer.join(60)
    disk.make_room()
    server.start()
    with server.connect() as connection:
        found = [i for (i,) in connection.execute("SELECT i FROM kept").fetchall()]
        assert len(found) == len(set(found))
        assert acknowledged <= set(found) <= sent | {1, 2}
        indexed(connection, "parity")
        check(connection, *found)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_disk_filling_repeatedly_under_load_loses_nothing(disk: SmallDisk, server: Server) -> None:
    choose = random.Random(20130103)
    sent: set[int] = set()
    acknowledged: set[int] = set()
    refused: Counter[str] = Counter()
    defined: list[int] = []
    unforeseen: list[BaseException] = []
    done = threading.Event()
    numbers = itertools.count(10)

    def insert(connection: psycopg.Connection[Any]) -> None:
        i = next(numbers)
        sent.add(i)
        connection.execute("INSERT INTO kept VALUES (%s, repeat('y', %s))", (i, 61 * (i % 100)))
        acknowledged.add(i)

    def define(connection: psycopg.Connection[Any]) -> None:
        i = next(numbers)
        connection.execute(f"CREATE TABLE t{i} AS SELECT i, 'x' AS x FROM kept".encode())
        connection.execute(
            f"CREATE MATERIALIZED VIEW v{i} AS SELECT count(*) AS n FROM t{i}".encode()
        )
        ((n,),) = connection.execute(f"SELECT n FROM v{i}".encode()).fetchall()
        assert connection.execute(f"SELECT count(*) FROM t{i}".encode()).fetchall() == [(n,)]
        connection.execute(f"DROP TABLE t{i} CASCADE".encode())
        defined.append(i)

    def again_and_again(work: Callable[[psycopg.Connection[Any]], None]) -> None:
        while not done.is_set():
            try:
                with server.connect() as connection:
                    while not done.is_set():
                        try:
                            work(connection)
                        except errors.DiskFull:
                            refused[work.__name__] += 1
            except psycopg.OperationalError:  # killed
                done.wait(0.1)
            except BaseException as error:
                unforeseen.append(error)
                return

    threads = [
        threading.Thread(target=again_and_again, args=(work,))
        for work in (insert, insert, insert, define)
    ]
    for thread in threads:
        thread.start()
    try:
        for turn in range(12):
            disk.fill(leaving=choose.randrange(512 << 10))
            before = sum(refused.values())
            until(lambda n=before: sum(refused.values()) > n + 5, "writes are refused")  # type: ignore[misc]
            with server.connect() as connection:
                count = connection.execute("SELECT count(*) FROM kept").fetchall()
                assert count[0][0] >= 2
            if turn % 3 == 2:
                server.kill()
                until(lambda: not server.processes(), "its replicas end")
                disk.make_room()
                server.start()
            disk.make_room()
            until(more_than(acknowledged, len(acknowledged) + 20), "writes go on")
            until(more_than(defined, len(defined)), "definitions go on", 60)
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert not unforeseen
    assert refused.keys() == {"insert", "define"}
    with server.connect() as connection:
        found = [i for (i,) in connection.execute("SELECT i FROM kept").fetchall()]
        assert len(found) == len(set(found))
        assert acknowledged <= set(found) <= sent | {1, 2}
        indexed(connection, "parity")
        check(connection, *found)
    assert server.stop() == 0
    log = server.log.read_text()
    assert "unforeseen" not in log
    assert "compaction failed" not in log
    assert not list((disk.seen / "data" / "scratch").iterdir())
    whole = disk.command("inspect", "--verify", str(server.data_dir))
    assert whole.returncode == 0, whole.stdout


def test_large_write_without_room_fails_alone(disk: SmallDisk, server: Server) -> None:
    """A large write shares its group with small ones, for which there is room."""
    stop = threading.Event()
    failures: list[BaseException] = []
    written: list[int] = []

    def insert() -> None:
        try:
            with server.connect() as connection:
                for i in itertools.count(10):
                    if stop.is_set():
                        return
                    connection.execute("INSERT INTO kept VALUES (%s, 'small')", (i,))
                    written.append(i)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=insert)
    writer.start()
    try:
        with server.connect() as connection:
            for _ in range(3):
                with pytest.raises(errors.DiskFull, match="No space left on device"):
                    copy(connection, 40_000)
                until(more_than(written, len(written)), "the others go on")
    finally:
        stop.set()
        writer.join(60)
    assert not failures
    with server.connect() as connection:
        check(connection, 1, 2, *written)


def test_start_on_full_disk_fails_without_harm(disk: SmallDisk, server: Server) -> None:
    with server.connect() as connection:
        connection.execute("INSERT INTO kept VALUES (3, 'three')")
        disk.fill()
        refuse(connection, "INSERT INTO kept SELECT 4, repeat('x', 100000)")
    server.kill()
    disk.fill()
    for room in (0, 36 << 10, 44 << 10):  # for increasing parts of the writes of a start
        until(lambda: not server.processes(), "the replicas of the one before have ended")
        disk.make_room()
        disk.fill(leaving=room)
        before = server.spawn()
        process = server.process
        assert process is not None
        until(
            lambda process=process, before=before: (  # type: ignore[misc]
                process.poll() is not None or b"foreshore ready" in server.log.read_bytes()[before:]
            ),
            "it serves or says why not",
            START_S,
        )
        said = server.log.read_bytes()[before:].decode()
        if process.poll() is None:
            server.kill()
            continue
        assert "Traceback" not in said
        assert process.returncode == 1, said
        assert "No space left on device" in said
        assert "Check free disk space" in said
    whole = disk.command("inspect", "--verify", str(server.data_dir))
    assert whole.returncode == 0, whole.stdout
    disk.make_room()
    server.start()
    with server.connect() as connection:
        indexed(connection, "parity")
        check(connection, 1, 2, 3)


def test_shutdown_on_full_disk_is_clean(disk: SmallDisk, server: Server) -> None:
    with server.connect() as connection:
        assert connection.execute("SELECT nextval('numbers')").fetchall() == [(1,)]
        disk.fill()
        refuse(connection, "INSERT INTO kept SELECT 4, repeat('x', 100000)")
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()
    disk.make_room()
    server.start()
    with server.connect() as connection:
        indexed(connection, "parity")
        check(connection, 1, 2)
        ((number,),) = connection.execute("SELECT nextval('numbers')").fetchall()
        assert number > 1


def test_compaction_resumes_when_there_is_room(disk: SmallDisk, server: Server) -> None:
    def stuck() -> bool:
        return "no room for compaction" in server.log.read_text()

    numbers = [1, 2]
    with server.connect() as connection:
        for i in range(10, 200):
            if stuck():
                break
            row = f"SELECT {i}, string_agg(md5(({i} * 100000 + j)::text), '') FROM generate_series(1, 4000) AS j"
            try:
                connection.execute(f"INSERT INTO kept {row}".encode())
            except errors.DiskFull:
                disk.make_room()
            else:
                numbers.append(i)
            disk.fill(leaving=300 << 10)
        until(stuck, "there is no room for compaction")
        check(connection, *numbers)
        disk.make_room()
        log = disk.seen / "data" / "log"
        until(
            lambda: sum(file_sizes(log).values()) < 300 << 10,
            "what was in the log is in batches",
            60,
        )
        check(connection, *numbers)
        scratch = disk.seen / "data" / "scratch"
        until(lambda: not file_sizes(scratch), "nothing half made is left behind")
    server.stop()
    assert "Traceback" not in server.log.read_text()
    server.start()
    with server.connect() as connection:
        indexed(connection, "parity")
        check(connection, *numbers)


@pytest.mark.slow
def test_backup_to_full_disk_keeps_previous_backup(disk: SmallDisk, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"

    place = disk.path / "backup"
    with serving(data_dir) as server, server.connect() as connection:
        connection.execute("CREATE TABLE kept (i int, t text)")
        connection.execute("INSERT INTO kept VALUES (1, 'one')")
        taken = disk.command("backup", "--from", str(data_dir), str(place))
        assert taken.returncode == 0, taken.stderr
        connection.execute(LARGE.encode())
        disk.fill(leaving=64 << 10)
        refused = disk.command("backup", "--from", str(data_dir), str(place))
        assert refused.returncode == 1
        assert "No space left on device" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert disk.free_bytes >= 60 << 10  # files of failed attempts are gone
        disk.make_room()
    restored = disk.command("restore", str(place), str(disk.path / "data"))
    assert restored.returncode == 0, restored.stderr
    server = disk.server()
    try:
        server.start()
        with server.connect() as connection:
            assert connection.execute("SELECT i, t FROM kept").fetchall() == [(1, "one")]
    finally:
        server.stop()


def test_query_spilling_to_full_disk_fails_alone(disk: SmallDisk) -> None:
    engine = DuckDbEngine(
        memory_limit="50MB", threads=1, scratch=str(disk.seen / "spill"), spill_limit="1GB"
    )
    try:
        disk.fill(leaving=4 << 20)
        sort = "SELECT i FROM range(4000000) AS t(i) ORDER BY hash(i), repeat('x', 20)"
        for _ in range(2):
            with (
                pytest.raises((OutOfDisk, OutOfMemory)),
                engine._session(1, Cancellation()) as session,
            ):
                session.fetch(sort)
        with engine._session(2, Cancellation()) as session:
            assert session.fetch("SELECT 1 + 1 AS two").to_pylist() == [{"two": 2}]
    finally:
        engine.close()
