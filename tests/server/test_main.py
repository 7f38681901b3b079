"""The command line, as a process."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import psycopg
import pytest

from foreshore.server.main import address


def test_addresses() -> None:
    assert address("127.0.0.1:6875") == ("127.0.0.1", 6875)
    assert address("[::1]:0") == ("::1", 0)
    for wrong in ("6875", "host:", "host:99999", "host:x"):
        with pytest.raises(click.BadParameter):
            address(wrong)


def serve(data_dir: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "foreshore.server.main", "serve"],
        env=os.environ
        | {
            "FORESHORE_DATA_DIR": str(data_dir),
            "FORESHORE_PG_LISTEN": "127.0.0.1:0",
            "FORESHORE_HTTP_LISTEN": "127.0.0.1:0",
        }
        | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_says_when_it_is_ready_and_ends_at_sigterm(tmp_path: Path) -> None:
    for expected in (0, 1):  # a second time, over what the first one left
        process = serve(tmp_path / "data")
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("foreshore ready: postgres://foreshore@127.0.0.1:")
        with psycopg.connect(line.split()[-1], autocommit=True) as connection:
            if not expected:
                connection.execute("CREATE TABLE t (a int)")
                connection.execute("INSERT INTO t VALUES (1)")
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve(tmp_path / "data", FORESHORE_PG_LISTEN=f"127.0.0.1:{port}")
        assert process.wait(30) == 1
        assert process.stderr is not None
        assert "address already in use" in process.stderr.read()
