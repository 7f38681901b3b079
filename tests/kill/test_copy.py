"""COPY of more rows than stay in memory, and SIGKILL: all or none of them, and no file is left."""

import os
from pathlib import Path
from typing import Any

import psycopg
import pytest

from foreshore.spill import KEPT_BYTES
from tests.harness import Server, until

pytestmark = pytest.mark.full

WIDE = "x" * 4_000
ROWS = 5 * KEPT_BYTES // (4 * len(WIDE))


def copy(connection: psycopg.Connection[Any]) -> None:
    connection.execute(b"BEGIN")
    lines = "".join(f"{i}\t{i}{WIDE}\n" for i in range(ROWS))
    with connection.cursor().copy(b"COPY t FROM STDIN") as rows:
        rows.write(lines)


def spilled(server: Server) -> list[str]:
    """Return the files without a name that the server has mapped."""
    assert server.process is not None
    maps = Path(f"/proc/{server.process.pid}/maps").read_text().splitlines()
    scratch = str(server.data_dir / "scratch")
    return [line for line in maps if scratch in line and "(deleted)" in line]


def test_rows_in_a_file_are_there_after_a_commit_only(data_dir: Path) -> None:
    server = Server(data_dir).start()
    count = b"SELECT count(*), sum(x), max(length(y)) FROM t"
    try:
        connection, other = server.connect(), server.connect()
        other.execute(b"CREATE TABLE t (x int, y text)")
        copy(connection)
        assert spilled(server)
        assert other.execute(count).fetchall() == [(0, None, None)]
        connection.execute(b"ROLLBACK")
        until(lambda: not spilled(server), "the file is gone")
        copy(connection)
        server.kill()
        server.start()
        connection = server.connect()
        assert connection.execute(count).fetchall() == [(0, None, None)]
        assert os.listdir(data_dir / "scratch") == []
        copy(connection)
        connection.execute(b"COMMIT")
        server.kill()
        server.start()
        with server.connect() as connection:
            whole = [(ROWS, sum(range(ROWS)), len(f"{ROWS - 1}{WIDE}"))]
            assert connection.execute(count).fetchall() == whole
    finally:
        server.stop()
