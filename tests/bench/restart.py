"""A replica that is killed, with and without checkpoints: `python -m tests.bench.restart [scale]`.

For each TPC-H view with an index: after SIGKILL of the replica, the time and the processor time
until the first right answer. With a checkpoint it is taken while rows are changed, some of them
after the checkpoint. Then the same after SIGKILL of the server, with four more views: the time until
the first view answers, until all do, and the processor time of both processes.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from tests.bench.freshness import Ours, changes
from tests.bench.tpch import MORE_VIEWS, VIEWS, tables
from tests.harness import Server, until

MORE_KEYS = {
    "top": "o_custkey", "outer": "c_custkey", "extremes": "l_suppkey", "groups": "o_orderkey",
}  # fmt: skip


def saved(ours: Ours) -> tuple[int, int]:
    """Return how many dataflows are in the newest checkpoint, and the bytes of their own files."""
    query = b"SELECT count(*), coalesce(sum(size), 0) FROM mz_internal.mz_checkpoints"
    (row,) = ours.connection.execute(query).fetchall()
    return int(row[0]), int(row[1])


def oldest(ours: Ours) -> int:
    """Return the least time until which the newest checkpoint has a dataflow's updates."""
    query = b"SELECT coalesce(min(write_frontier)::text::int8, 0) FROM mz_internal.mz_checkpoints"
    return int(ours.connection.execute(query).fetchall()[0][0])


def replica_cpu(server: Server) -> float:
    """Return the processor time of the replica that runs now."""
    ticks = 0
    for pid in server.children():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def restarted(ours: Ours, probes: dict[str, int]) -> tuple[float, float]:
    """Kill the replica; return the seconds, and its processor time, until all views answer."""
    (pid,) = ours.server.children()
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    for name, count in probes.items():
        query = f"SELECT count(*) FROM {name}".encode()
        found = ours.connection.execute(query).fetchall()[0][0]
        assert found == count, (name, found, count)
    return time.perf_counter() - began, replica_cpu(ours.server)


def server_restarted(ours: Ours, probes: dict[str, int]) -> tuple[float, float, float]:
    """Kill the server; return the seconds until the first view answers, all do, and the CPU."""
    ours.connection.close()
    began = time.perf_counter()
    ours.server.kill()
    ours.server.start()
    ours.connection = ours.server.connect()
    first = 0.0
    for name, count in probes.items():
        query = f"SELECT count(*) FROM {name}".encode()
        found = ours.connection.execute(query).fetchall()[0][0]
        assert found == count, (name, found, count)
        first = first or time.perf_counter() - began
    return first, time.perf_counter() - began, ours.cpu()


def more_views(ours: Ours) -> None:
    """Make the other views, each with an index."""
    for number, (view, key) in enumerate(MORE_KEYS.items()):
        name = f"more{number}"
        ours.connection.execute(f"CREATE VIEW {name} AS {MORE_VIEWS[view]}".encode())
        ours.connection.execute(f"CREATE INDEX ON {name} ({key})".encode())
        ours.connection.execute(f"SELECT count(*) FROM {name}".encode())
        ours.views = [*ours.views, name]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scale", nargs="?", type=float, default=0.1)
    parser.add_argument("views", nargs="*", default=list(VIEWS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    data = tables(options.scale)
    lines = data["lineitem"].select(["l_orderkey", "l_linenumber"]).combine_chunks()
    print("views        | restart s, CPU s: anew | from a checkpoint | checkpoint")
    for interval in ("0", "5"):
        with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
            arguments = ("--checkpoint-interval", interval, "--checkpoint-size", "0")
            server = Server(
                Path(folder) / "data", arguments, program=("-m", "foreshore.server.start")
            )
            try:
                measure(Ours(server.start(), data, options.views), lines, interval, options.rounds)
            finally:
                server.stop()


def measure(ours: Ours, lines: pa.Table, interval: str, rounds: int) -> None:
    """Print the figures of one server."""
    drawn = changes(lines, 100)

    def probed() -> dict[str, int]:
        """Change rows before and after a checkpoint; return how many rows each view has then."""
        ours.change(next(drawn))
        if interval != "0":
            before = oldest(ours)
            until(
                lambda: saved(ours)[0] == len(ours.views) and oldest(ours) > before,
                "a checkpoint of all views",
                within_s=600,
            )
        ours.change(next(drawn))  # what is missed
        count = b"SELECT count(*) FROM "
        return {
            name: ours.connection.execute(count + name.encode()).fetchall()[0][0]
            for name in ours.views
        }

    found = [restarted(ours, probed()) for _ in range(rounds)]
    size = sum(
        file.stat().st_size for file in ours.server.data_dir.glob("blob/checkpoints/**/*.arrow")
    )
    shown = ", ".join(f"{seconds:.1f} ({cpu:.1f})" for seconds, cpu in found)
    print(f"{' '.join(ours.views)} interval {interval}: {shown}; {size >> 20} MB", flush=True)
    more_views(ours)
    again = [server_restarted(ours, probed()) for _ in range(rounds)]
    shown = ", ".join(f"{first:.1f}, {all:.1f} ({cpu:.1f})" for first, all, cpu in again)
    print(f"server with {len(ours.views)} views: first, all (CPU): {shown}", flush=True)


if __name__ == "__main__":
    main()
