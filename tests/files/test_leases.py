"""Open readers with a lease: a server that compacts constantly deletes no file they need."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.files.writing import ACCOUNTS, TOTAL, busy, create, written
from tests.harness import ROOT, Server, until
from tests.stopped_process import stop_process

OPEN = ROOT / "docs" / "open"
sys.path.append(str(OPEN))
import foreshore_files  # noqa: E402
import read_duckdb  # noqa: E402

NAME = "foreshore.public.account"
WITHIN_S = 200.0
READER = """
import json, sys
from pathlib import Path
import foreshore_files
foreshore_files.LEASE_MS = 3_600_000  # however slow the machine is

def read(files, as_of):
    print(json.dumps(files), flush=True)
    sys.stdin.read()

foreshore_files.reading(Path(sys.argv[1]), sys.argv[2], None, read)
"""

STOPPED = """
import json, sys
from pathlib import Path
import foreshore_files, read_duckdb

def read(files, as_of):
    if not calls:
        print(json.dumps(files), flush=True)
        sys.stdin.read()
    calls.append(files)
    return read_duckdb.contents(files, as_of)

calls = []
rows = foreshore_files.reading(Path(sys.argv[1]), sys.argv[2], None, read)
print(json.dumps([len(calls), rows.to_pydict()]))
"""


def there(files: set[str]) -> set[str]:
    return {file for file in files if Path(file).exists()}


def named(data_dir: Path) -> set[str]:
    return foreshore_files.named(data_dir, foreshore_files.states(data_dir))


def until_replaced(server: Server, files: set[str]) -> set[str]:
    """Return the replaced ones of the files, once the server has deleted others."""
    with written(server):
        until(lambda: bool(files - named(server.data_dir)), "one is replaced", WITHIN_S)
        replaced = files - named(server.data_dir)
        later = named(server.data_dir)
        until(lambda: there(later) < later, "one that went later is deleted", WITHIN_S)
    return replaced


def check(rows: pa.Table) -> None:
    balances = dict(
        zip(*(rows.column(name).to_pylist() for name in ("id", "balance")), strict=True)
    )
    assert sorted(balances) == list(range(ACCOUNTS))
    assert sum(balances.values()) == TOTAL


def started(server: Server) -> None:
    """Make the tables, with the accounts in a batch."""
    with server.connect() as connection:
        create(connection)

    def in_a_batch(files: list[str], as_of: int) -> bool:
        return any(Path(file).is_relative_to(server.data_dir) for file in files)

    def sealed() -> bool:
        return bool(foreshore_files.reading(server.data_dir, NAME, None, in_a_batch))

    with written(server):
        until(sealed, "the accounts are in a batch", WITHIN_S)


def reading(data_dir: Path, wait: Callable[[set[str]], None], *, lease: bool) -> int:
    """Read the accounts, waiting before the first attempt; return the number of attempts."""
    calls = 0

    def read(files: list[str], as_of: int) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            wait({file for file in files if Path(file).is_relative_to(data_dir)})
        return read_duckdb.contents(files, as_of)

    check(foreshore_files.reading(data_dir, NAME, None, read, lease=lease))
    return calls


def test_lease_is_renewed_narrowed_and_removed(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreshore_files, "LEASE_MS", 30)
    (data_dir / "leases").mkdir(parents=True)

    def holds(path: Path) -> list[str]:
        return list(json.loads(path.read_text())["holds"])

    with foreshore_files.leased(data_dir) as hold:
        (path,) = (data_dir / "leases").iterdir()
        assert holds(path) == ["blob", "log"]
        hold(["blob/u1/1"])
        assert holds(path) == ["blob/u1/1"]
        for _ in range(2):
            os.utime(path, (0, 0))
            until(lambda: path.stat().st_mtime > 0, "it is renewed")
    assert not path.exists()
    with foreshore_files.leased(data_dir) as hold:
        (path,) = (data_dir / "leases").iterdir()
        path.unlink()  # the server found that it had ended
        hold(["blob/u1/1"])
        assert not path.exists()  # it would not have held all the time


@pytest.mark.timeout(1200)
def test_slow_reader_with_lease_reads_once(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreshore_files, "LEASE_MS", 3_600_000)  # however slow the machine is
    held: set[str] = set()

    def replaced(files: set[str]) -> None:
        held.update(until_replaced(server, files))

    def replaced_and_killed(files: set[str]) -> None:
        replaced(files)
        server.kill()
        server.start()  # and removes what no state names

    with busy(data_dir) as server:
        started(server)
        assert reading(data_dir, replaced_and_killed, lease=True) == 1
        assert held
        assert not list((data_dir / "leases").iterdir())
        until(lambda: not there(held), "what was held goes when nobody holds it", WITHIN_S)

        def gone(files: set[str]) -> None:
            replaced(files)
            until(lambda: there(files) < files, "nobody holds it", WITHIN_S)

        assert reading(data_dir, gone, lease=False) > 1
        shutil.rmtree(data_dir / "leases")  # as where one may not write
        assert reading(data_dir, gone, lease=True) > 1


@pytest.mark.timeout(1200)
def test_killed_reader_keeps_files_until_lease_expires(data_dir: Path) -> None:
    with busy(data_dir) as server:
        started(server)
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(data_dir), NAME],
            env={**os.environ, "PYTHONPATH": str(OPEN)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert reader.stdin is not None
        assert reader.stdout is not None
        try:
            read = {file for file in json.loads(reader.stdout.readline()) if str(data_dir) in file}
            replaced = until_replaced(server, read)
        finally:
            reader.kill()
            reader.wait()
            reader.stdin.close()
            reader.stdout.close()
        more = until_replaced(server, read)
        assert there(replaced | more) == replaced | more
        (lease,) = (data_dir / "leases").iterdir()
        os.utime(lease, (0, 0))  # a minute later
        until(lambda: not there(replaced | more), "a dead reader holds nothing", WITHIN_S)
        until(lambda: not lease.exists(), "the lease that ended is removed", WITHIN_S)


@pytest.mark.timeout(1200)
def test_reader_stopped_beyond_its_lease_starts_over(data_dir: Path) -> None:
    with busy(data_dir) as server:
        started(server)
        reader = subprocess.Popen(
            [sys.executable, "-c", STOPPED, str(data_dir), NAME],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(OPEN), *filter(None, sys.path)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert reader.stdin is not None
        assert reader.stdout is not None
        try:
            read = {file for file in json.loads(reader.stdout.readline()) if str(data_dir) in file}
            stop_process(reader.pid)  # its heart beats no more
            replaced = until_replaced(server, read)
            assert there(replaced) == replaced
            (lease,) = (data_dir / "leases").iterdir()
            os.utime(lease, (0, 0))  # a minute later
            until(lambda: not there(replaced), "who is not heard holds nothing", WITHIN_S)
            reader.send_signal(signal.SIGCONT)
            reader.stdin.close()
            calls, rows = json.loads(reader.stdout.readline())
            assert reader.wait(60) == 0
        finally:
            reader.kill()
            reader.wait()
            reader.stdout.close()
        assert calls > 1  # what it had begun with was gone, and it noticed
        check(pa.table(rows))
