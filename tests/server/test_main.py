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


def test_address_is_split_into_host_and_port() -> None:
    assert address("127.0.0.1:6875") == ("127.0.0.1", 6875)
    assert address("[::1]:0") == ("::1", 0)
    for wrong in ("6875", "host:", "host:99999", "host:x"):
        with pytest.raises(click.BadParameter):
            address(wrong)


def serve(
    data_dir: Path, *args: str, stdin: int | None = None, **environment: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "foreshore.server.main", "serve", *args],
        stdin=stdin,
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


def test_server_prints_ready_line_and_ends_at_sigterm(tmp_path: Path) -> None:
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


def test_sigterm_during_take_over_ends_the_new_server(tmp_path: Path) -> None:
    before = serve(tmp_path / "data")
    assert before.stdout is not None
    assert before.stdout.readline()
    before.send_signal(signal.SIGSTOP)
    try:
        process = serve(tmp_path / "data", FORESHORE_TAKE_OVER="1")
        assert process.stderr is not None
        assert process.stdout is not None
        assert any("the data is taken over" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()  # to its end
        assert process.wait(30) == 0
        assert "the other server does not end" not in said
        assert process.stdout.read() == "", "it has never answered"
    finally:
        before.kill()
        before.wait()


FAILING = """
import errno, os, sys
from foreshore.server import main

async def failing(options):
    raise OSError(errno.EBADF, os.strerror(errno.EBADF), *sys.argv[1:])

main.serve = failing
main.main(["serve"])
"""


@pytest.mark.parametrize("names", [(), ("data/log",)])
def test_error_without_file_name_logs_its_traceback(names: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", FAILING, *names]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "CRITICAL foreshore.server.main: [Errno 9] Bad file descriptor" in ended.stderr
    assert ("in failing" in ended.stderr) == (not names)


@pytest.mark.parametrize("which", ["pg", "http"])
def test_port_in_use_ends_start_with_one_line(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        process = serve(tmp_path / "data", f"--{which}-listen", place)
        assert process.wait(30) == 1
        assert not (tmp_path / "data").exists()  # whose data it is has not been touched
        assert process.stderr is not None
        (line,) = process.stderr.read().splitlines()
        _, _, said = line.partition(" CRITICAL __main__: ")
        assert said == (
            f'could not bind address "{place}": Address already in use; '
            f"Is another server running there? End it, or choose another address by --{which}-listen."
        )


def test_server_with_lifeline_ends_at_end_of_standard_input(tmp_path: Path) -> None:
    process = serve(tmp_path / "data", "--lifeline", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    url = process.stdout.readline().split()[-1]
    process.stdin.write("what is said on it is no matter")
    process.stdin.flush()
    psycopg.connect(url).close()
    process.stdin.close()
    assert process.wait(30) == 0


def test_server_without_lifeline_needs_no_standard_input(tmp_path: Path) -> None:
    process = serve(tmp_path / "data", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    psycopg.connect(process.stdout.readline().split()[-1]).close()
    process.terminate()
    assert process.wait(30) == 0
