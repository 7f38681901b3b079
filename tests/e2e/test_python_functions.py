"""Functions in Python on a real server: dumped and restored, cancelled, ended with the server."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import psycopg
import pytest

from tests.e2e.test_pg_dump import run, url_of
from tests.harness import Server, program

pytestmark = pytest.mark.full
DEFINITIONS = (
    "CREATE FUNCTION area(a int, b float8) RETURNS float8 LANGUAGE python IMMUTABLE STRICT AS"
    " $$\nUNIT = 'it''s a \\ unit'\n\ndef area(a, b):\n    return a * b\n$$",
    "CREATE FUNCTION spin(a int) RETURNS int LANGUAGE python IMMUTABLE AS"
    " $$def spin(a):\n  while True: pass$$",
    "CREATE TABLE t (id int PRIMARY KEY, a int)",
    "INSERT INTO t SELECT i, i FROM generate_series(1, 100) i",
    "CREATE MATERIALIZED VIEW v AS SELECT id, area(a, 0.5) AS b FROM t",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("server") / "data"
    server = Server(path, ("--python-functions",), program=("-m", "foreshore.server.main"))
    with server.start().connect() as connection:
        for each in DEFINITIONS:
            connection.execute(each.encode())
    yield server
    server.stop()


def test_dump_is_restored(server: Server) -> None:
    dump = run(program("pg_dump"), server.url)
    with server.connect() as connection:
        connection.execute("CREATE DATABASE restored")
    options = ("-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null")
    run(program("psql"), url_of(server, "restored"), *options, given=dump)
    found = []
    for database in ("foreshore", "restored"):
        with psycopg.connect(url_of(server, database), autocommit=True) as connection:
            texts = "SELECT prosrc FROM pg_proc WHERE proname IN ('area', 'spin') ORDER BY 1"
            rows = connection.execute("SELECT * FROM v ORDER BY id").fetchall()
            found.append((connection.execute(texts).fetchall(), rows))
    assert found[0] == found[1]
    assert len(found[0][1]) == 100


def test_loop_is_cancelled_and_ends_with_the_server(server: Server) -> None:
    with server.connect() as spinning:
        for query in ("SELECT spin(1)", "SELECT spin(a) FROM t"):
            timer = Timer(2, spinning.cancel)
            timer.start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                spinning.execute(query)
            timer.join()
    assert server.process is not None
    spinning = server.connect()
    found: list[int] = []

    def kill() -> None:
        assert server.process is not None
        found.extend(_hosts_below(server.process.pid))
        server.kill()

    timer = Timer(3, kill)
    timer.start()
    with pytest.raises(psycopg.OperationalError):
        spinning.execute("SELECT spin(a) FROM t")
    timer.join()
    assert found
    while any(map(_is_host, found)):
        time.sleep(0.1)


def _hosts_below(pid: int) -> list[int]:
    """Return the hosts that a process, or one below it, has started."""
    found, waiting = [], [pid]
    while waiting:
        pid = waiting.pop()
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [pid] if _is_host(pid) else []
    return found


def _is_host(pid: int) -> bool:
    try:
        return b"foreshore.python_functions.host" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
