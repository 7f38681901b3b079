"""Changes without end while replicas are killed: `python -m tests.bench.soak [--minutes 60]`.

Lines of TPC-H, edges of a graph and events of Nexmark are changed at a steady rate, durably, and then
all views of the harness are read (`soak_views.py`); every so often the replica is killed. Each line that is printed tells of a
tenth of the time: what must stay flat is the memory of server and replica, the files, and the time
of a batch. At the end each view is compared with DuckDB computing it anew.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tests.bench.freshness import Cost, Ours, changes
from tests.bench.soak_views import ALL, Everything, PeerOfEverything, differing
from tests.bench.tpch import tables
from tests.harness import Server

PERIODS = 10


@dataclass(slots=True)
class Period:
    """Measurements of one period; `costs` are those of batches that met no kill."""

    costs: list[Cost] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)  # seconds until all views answered


def resident(pids: Iterable[int]) -> int:
    """Return the bytes in memory of some processes."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


def files_of(folder: Path) -> tuple[int, int]:
    """Return how many files are below a folder, and their bytes; some vanish meanwhile."""
    count = size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
            count += 1
    return count, size


def line(ours: Ours, number: int, period: Period) -> str:
    """Return the figures of a period, in which some batches met no kill."""
    server = ours.server
    children = server.children()
    others = [pid for pid in server.processes() if pid not in children]
    times = sorted(cost.total for cost in period.costs)
    count, size = files_of(server.data_dir)
    recovered = f"{max(period.recoveries):5.1f}" if period.recoveries else "    -"
    return (
        f"{number:6} | {len(times):7} | {statistics.median(times) * 1e3:8.1f}"
        f" {times[int(len(times) * 0.99)] * 1e3:8.1f}"
        f" | {statistics.mean(cost.cpu for cost in period.costs) * 1e3:7.1f} | {recovered}"
        f" | {resident(others) >> 20:6} {resident(children) >> 20:6} | {count:6} {size >> 20:6}"
    )


def soak(ours: Ours, peer: PeerOfEverything, lines: pa.Table, options: argparse.Namespace) -> None:
    """Change lines until the time is over; print a line for each period."""
    drawn = changes(lines, options.rows)
    seconds = options.minutes * 60
    began = time.monotonic()
    next_kill = options.kill_seconds
    for number in range(1, PERIODS + 1):
        period = Period()
        while (now := time.monotonic() - began) < seconds * number / PERIODS:
            change = next(drawn)
            if now >= next_kill:
                next_kill += options.kill_seconds
                for pid in ours.server.children():
                    os.kill(pid, signal.SIGKILL)
                period.recoveries.append(ours.round(change).total)
            else:
                period.costs.append(ours.round(change))
            peer.apply(change)
            rest = options.batch_seconds - (time.monotonic() - began - now)
            time.sleep(max(0.0, rest))
        if period.costs:
            print(line(ours, number, period), flush=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rows", type=int, default=200, help="changed lines of a batch")
    parser.add_argument("--batch-seconds", type=float, default=0.25, help="from batch to batch")
    parser.add_argument("--kill-seconds", type=float, default=120, help="from kill to kill")
    options = parser.parse_args()
    data = tables(options.scale)
    lines = data["lineitem"].select(["l_orderkey", "l_linenumber"]).combine_chunks()
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        arguments = ("--checkpoint-interval", "30", "--checkpoint-size", "0")
        server = Server(Path(folder) / "data", arguments, program=("-m", "foreshore.server.main"))
        try:
            ours = Everything(server.start(), data, list(ALL))
            peer = PeerOfEverything(data, list(ALL))
            del data
            print("period | batches | fresh, p99 (ms)   | CPU ms  | kill s | server, replica MB"
                  " | files, MB")  # fmt: skip
            soak(ours, peer, lines, options)
            wrong = differing(ours, peer)
            assert not wrong, wrong
            print("all views equal what DuckDB computes")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
