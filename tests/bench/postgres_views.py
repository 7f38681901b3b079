"""Views and a sink behind a PostgreSQL source under load: memory, processor time and freshness.

`python -m tests.bench.postgres_views [LOAD] [IDLE] [--scale N] [--rate N]`, in seconds: pgbench at so
many transactions a second, then nothing, then load again, behind four materialized views, of which
one goes to a second PostgreSQL. A line each ten seconds has the memory of each kind of process, the
processor time since the line before in cores, how long a read waits for all that is upstream, how far
the sink is behind, and states other than `running`. At the end all views and the sink's table must
have the rows that PostgreSQL computes. The defaults take a minute.
"""

import argparse
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.adapter.sources.publisher import options_of
from tests.bench.postgres import cpu
from tests.harness import Server, initialised_postgres, running_postgres, until
from tests.kill.test_postgres_source import SOURCE, Upstream, caught_up

LINE_SECONDS = 10.0
VIEWS = {
    "by_teller": "SELECT tid, count(*) AS n, sum(delta) AS s FROM pgbench_history GROUP BY tid",
    "by_branch": "SELECT bid, count(*) AS n, sum(abalance) AS s FROM pgbench_accounts GROUP BY bid",
    "by_group": "SELECT aid / 1000 AS g, sum(abalance) AS s, max(abalance) AS m, min(bid) AS b"
    " FROM pgbench_accounts GROUP BY aid / 1000",
    "joined": "SELECT b.bid, max(b.bbalance) AS bs, sum(t.tbalance) AS ts, count(*) AS n"
    " FROM pgbench_branches b JOIN pgbench_tellers t ON t.bid = b.bid GROUP BY b.bid",
}
SUNK = "by_teller"
NOT_RUNNING = """
SELECT name, status, error FROM mz_internal.mz_source_statuses WHERE status <> 'running'
UNION ALL
SELECT name, status, error FROM mz_internal.mz_sink_statuses WHERE status <> 'running'
"""
BEHIND = "SELECT extract(epoch FROM lag)::float8 FROM mz_internal.mz_sink_statistics"
KINDS = {b"ingest.main": "ingest", b"export.main": "export", b"compute.replica": "replica"}


def main() -> None:
    """Run the phases, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("load", type=float, nargs="?", default=20.0)
    parser.add_argument("idle", type=float, nargs="?", default=20.0)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--rate", type=int, default=100)
    options = parser.parse_args()
    with running(options.scale) as (upstream, server, target):
        watch = Watch(server)
        for phase, seconds in (
            ("load", options.load),
            ("idle", options.idle),
            ("load", options.load),
        ):
            ends = time.monotonic() + seconds
            bench = loaded(upstream, options.rate, seconds) if phase == "load" else None
            while time.monotonic() < ends:
                time.sleep(min(LINE_SECONDS, max(0.0, ends - time.monotonic())))
                print(f"{phase:5}", watch.line(), flush=True)
            if bench is not None:
                bench.wait()
        caught_up(server, upstream)
        compare(server, upstream, target)


@contextlib.contextmanager
def running(scale: int) -> Iterator[tuple[Upstream, Server, str]]:
    """Yield a server with the views and the sink, between two PostgreSQL."""
    with (
        initialised_postgres() as folder,
        initialised_postgres() as other,
        running_postgres(other) as target,
        tempfile.TemporaryDirectory() as data,
    ):
        upstream, server = Upstream(folder), Server(Path(data) / "data")
        upstream.start()
        upstream.prepare(scale)
        server.start()
        try:
            with server.connect() as ours:
                ours.execute(f"CREATE CONNECTION pg TO POSTGRES ({options_of(upstream.url)})")
                ours.execute(f"CREATE CONNECTION away TO POSTGRES ({options_of(target)})")
                ours.execute(SOURCE)
            caught_up(server, upstream)
            with server.connect() as ours:
                for name, query in VIEWS.items():
                    ours.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}".encode())
                ours.execute(
                    f"CREATE SINK out FROM {SUNK} INTO POSTGRES CONNECTION away"
                    f" (TABLE 'public.{SUNK}') KEY (tid)"
                )
            yield upstream, server, target
        finally:
            server.stop()
            upstream.crash()


def loaded(upstream: Upstream, rate: int, seconds: float) -> "subprocess.Popen[bytes]":
    """Start pgbench at so many transactions a second."""
    return upstream.pgbench("-n", "-c", "4", "-R", str(rate), "-T", str(max(1, round(seconds))))


@dataclass
class Usage:
    """What one kind of process uses."""

    megabytes: float = 0.0
    cores: float = 0.0


class Watch:
    """Looks at a server again and again."""

    def __init__(self, server: Server) -> None:
        self._server, self._began = server, time.monotonic()
        self._at, self._used = self._began, self._processor_times()

    def line(self) -> str:
        """Return what there is to see, as a line."""
        fresh, behind, states = self._fresh()
        used, at = self._processor_times(), time.monotonic()
        usages: dict[str, Usage] = {}
        for pid, (kind, seconds) in used.items():
            usage = usages.setdefault(kind, Usage())
            usage.megabytes += resident(pid)
            before = self._used.get(pid, (kind, 0.0))[1]
            usage.cores += (seconds - before) / (at - self._at)
        self._at, self._used = at, used
        parts = [
            f"{kind} {usage.megabytes:.0f} MB {usage.cores:.2f}"
            for kind, usage in sorted(usages.items())
        ]
        return (
            f"{at - self._began:5.0f} s  {'  '.join(parts)}  fresh {fresh:.2f} s"
            f"  sink {behind:.2f} s {states or ''}"
        )

    def _fresh(self) -> tuple[float, float, list[tuple[object, ...]]]:
        """Return how long recent reads wait, the sink's lag, and states that are not `running`."""
        with self._server.connect() as ours:
            (behind,) = ours.execute(BEHIND.encode()).fetchone() or (float("nan"),)
            states = ours.execute(NOT_RUNNING.encode()).fetchall()
            ours.execute("SET real_time_recency = on")
            began = time.monotonic()
            for name in VIEWS:
                ours.execute(f"SELECT count(*) FROM {name}".encode()).fetchall()
            return time.monotonic() - began, float(behind or 0), states

    def _processor_times(self) -> dict[int, tuple[str, float]]:
        found = {}
        for pid in self._server.processes():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                kind = next((name for part, name in KINDS.items() if part in command), "server")
                found[pid] = kind, cpu(pid)
        return found


def resident(pid: int) -> float:
    """Return the memory that a process has of its own, in megabytes: without mapped files."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def compare(server: Server, upstream: Upstream, target: str) -> None:
    """Fail unless the views and the sink's table have the rows that PostgreSQL computes."""
    with psycopg.connect(upstream.url) as theirs, server.connect() as ours:
        for name, query in VIEWS.items():
            expected = sorted(theirs.execute(query.encode()).fetchall())
            assert sorted(ours.execute(f"TABLE {name}".encode()).fetchall()) == expected, name
        sunk = sorted(theirs.execute(VIEWS[SUNK].encode()).fetchall())

    def is_there() -> bool:
        with psycopg.connect(target) as other:
            return sorted(other.execute(f"SELECT tid, n, s FROM {SUNK}".encode())) == sunk

    until(is_there, "the sink's table has all rows")
    print("all views and the sink's table are equal")


if __name__ == "__main__":
    main()
