"""A server that does nothing stays small, its replicas included."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg
import pytest

from tests.harness import Server, until

pytestmark = pytest.mark.full

MOST_MB = 250.0


def own_mb(pids: set[int]) -> float:
    """Return the memory of processes in MB without mapped files, which others may share or not."""
    kilobytes = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                kilobytes += int(line.split()[1])
    return kilobytes / 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux's /proc")
def test_idle_server_and_its_replica_take_less_than_250_mb(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", program=("-m", "foreshore.server.start")).start()
    ready = "SELECT count(*) FROM mz_internal.mz_cluster_replica_statuses WHERE status = 'online'"
    with psycopg.connect(server.url, autocommit=True) as connection:
        until(lambda: connection.execute(ready).fetchone() != (0,), "the replica is online")
    used = own_mb(server.processes())
    assert len(server.processes()) == 2, "the server and the replica of its default cluster"
    assert used < MOST_MB, f"{used:.0f} MB"
    assert server.stop() == 0
    print(f"{used:.0f} MB", file=sys.stderr)
