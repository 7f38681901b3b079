"""A replica whose worker is killed starts again, and answers are right before, then and after."""

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

from tests.harness import Server, serving, until


def workers_of(server: Server) -> set[int]:
    """Return the worker processes of a server's replicas."""
    found = set()
    for pid in server.children():
        listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
        found |= set(map(int, listed.stdout.split()))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def has_new_workers(server: Server, before: set[int]) -> bool:
    """Whether there are two workers, none of which was there before."""
    workers = workers_of(server)
    return len(workers) == 2 and not workers & before


def test_killed_worker_restarts_its_replica(data_dir: Path) -> None:
    with serving(data_dir) as server:
        with server.connect() as connection:
            connection.execute("CREATE CLUSTER c (SIZE = 'embedded', WORKERS = 2)")
            connection.execute("SET cluster = c")
            connection.execute("CREATE TABLE t (k int, x text)")
            connection.execute(
                "INSERT INTO t SELECT i % 10, 'x' || i FROM generate_series(1, 99) i"
            )
            connection.execute("CREATE VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
            connection.execute("CREATE INDEX ON v (k)")
            connection.execute("CREATE MATERIALIZED VIEW m AS SELECT max(x) AS x FROM t")
            read = "SELECT (SELECT sum(n) FROM v), (SELECT x FROM m)"
            assert connection.execute(read).fetchall() == [(99, "x99")]
            for round in range(1, 4):
                workers = workers_of(server)
                assert len(workers) == 2
                killed = sorted(workers)[round % 2]
                os.kill(killed, signal.SIGKILL)
                connection.execute("INSERT INTO t VALUES (%s, 'y')", (round,))
                assert connection.execute(read).fetchall() == [(99 + round, "y")]
                until(partial(has_new_workers, server, workers), "the replica has new workers")
            left = workers_of(server)
            (replica,) = {
                pid
                for pid in server.children()
                if subprocess.run(["pgrep", "-P", str(pid)]).returncode == 0
            }
            os.kill(replica, signal.SIGKILL)
            until(lambda: not any(map(is_alive, left)), "workers end with their replica")
            assert connection.execute(read).fetchall() == [(102, "y")]
        last = workers_of(server)
    until(lambda: not any(map(is_alive, last)), "workers end with the server")
