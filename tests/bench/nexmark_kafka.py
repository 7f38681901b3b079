"""Nexmark's views over topics of Kafka: `python -m tests.bench.nexmark_kafka [views]`.

A process of its own writes events as JSON to a mock cluster at `--rate` (`nexmark_feed.py`). Each
view is measured by itself, and then all of them together. While events come, a client reads the
view and how many bids it has, in one transaction, so at one time. The *freshness* of an answer is
the age of the oldest bid that is not in it when it arrives: how late a reader learns of a bid at
worst. Printed are its median, the worst of a hundred and the worst, and the processor time of the
ingestion process, the server and the replica. At the end each view must equal what DuckDB computes
from all events. "Waiting for a processor" are the threads of these that could run and did not, on
average: above 0.2, say, the machine is too busy for the freshness to mean much.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from psycopg import Connection

from tests.bench import nexmark
from tests.bench.freshness import serving
from tests.bench.nexmark_feed import GENERATED
from tests.bench.streams import check, in_duckdb
from tests.harness import Server, indexed, until

VIEWS = ("q4", "q5", "q16")
POLL_SECONDS = 0.1  # between two answers
READ_BIDS = 'SELECT sum("offset")::int8 FROM bid_progress'


@dataclass(slots=True)
class Feed:
    """The process that writes events."""

    process: subprocess.Popen[str]
    address: str
    first: int = 0  # of the events that come next

    def write(self, rate: int, seconds: float) -> Written:
        """Write events, and return when they were written."""
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            assert self.process.stdin
            assert self.process.stdout
            print(rate, seconds, file.name, file=self.process.stdin, flush=True)
            count, behind = self.process.stdout.readline().split()
            times = np.load(file.name)
        self.first += int(count)
        return Written(int(count), float(behind), times[:, 0], times[:, 1])


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: when each slice, and how many bids there were before it."""

    events: int
    behind: float
    times: np.ndarray
    bids: np.ndarray

    def oldest_after(self, bids: int) -> float:
        """Return when the first bid after so many was written."""
        at: float = self.times[max(0, int(np.searchsorted(self.bids, bids, "right")) - 1)]
        return at


@dataclass(slots=True)
class Reader:
    """Reads views while events come."""

    connection: Connection[Any]
    views: Sequence[str]
    answers: list[tuple[float, int]] = field(default_factory=list)  # when, and with which bids
    ends: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Read until told to end."""
        while not self.ends.is_set():
            self.answers.append(self.read())
            self.ends.wait(POLL_SECONDS)

    def read(self) -> tuple[float, int]:
        """Return when an answer came, and how many bids it had."""
        with self.connection.transaction():
            (row,) = self.connection.execute(READ_BIDS).fetchall()
            for view in self.views:
                self.connection.execute(f"SELECT count(*) FROM {view}".encode()).fetchall()
        return time.time(), row[0] or 0


@contextmanager
def feeding() -> Iterator[Feed]:
    """Run the process that writes events."""
    command = [sys.executable, "-m", "tests.bench.nexmark_feed"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield Feed(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()


def create(server: Server, connection: Connection[Any], address: str, options: Any) -> None:
    """Create the sources and views, and wait until they run."""
    connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{address}')".encode())
    for name, ddl in nexmark.SCHEMA.items():
        columns = ddl[ddl.index("(") :]
        connection.execute(
            f"CREATE SOURCE {name} {columns} FROM KAFKA CONNECTION k (TOPIC '{name}',"
            f" TIMESTAMP INTERVAL '{options.interval} ms') FORMAT JSON".encode()
        )
    for view in options.views:
        kind = "VIEW" if options.indexed else "MATERIALIZED VIEW"
        connection.execute(f"CREATE {kind} {view} AS {nexmark.VIEWS[view]}".encode())
        if options.indexed:
            connection.execute(f"CREATE DEFAULT INDEX ON {view}".encode())
            indexed(connection, view)
    connection.execute(b"CREATE DEFAULT INDEX ON bid_progress")

    def all_run() -> bool:
        sql = "SELECT count(*) FROM mz_internal.mz_dataflow_statuses WHERE state <> 'running'"
        return connection.execute(sql).fetchone() == (0,)

    until(all_run, "all views are hydrated")


def measured(feed: Feed, options: Any) -> None:
    """Print the figures of some views in a server of their own."""
    with serving() as server:
        connection = server.connect()
        create(server, connection, feed.address, options)
        bids_before = _wait(connection, feed.first)
        feed.write(options.rate, options.warm)
        bids_before = _wait(connection, feed.first)
        reader = Reader(server.connect(), options.views)
        thread = threading.Thread(target=reader.run)
        thread.start()
        begun, before, waited = time.time(), processor_seconds(server), waited_seconds(server)
        written = feed.write(options.rate, options.seconds)
        after, took = processor_seconds(server), time.time() - begun
        starved = (waited_seconds(server) - waited) / took
        reader.ends.set()
        thread.join()
        assert _wait(connection, feed.first) == bids_before + int(written.bids[-1])
        lags = [
            at - written.oldest_after(bids - bids_before)
            for at, bids in reader.answers
            if bids >= bids_before and at > begun + took * options.skip
        ]
        used = {name: after[name] - before[name] for name in after}
        report(options.views, written, took, lags, used, starved)
        if options.check:
            compare(connection, options.views, feed.first)
        print(f"    memory: {memory(server)}", flush=True)


def report(
    views: Sequence[str],
    written: Written,
    took: float,
    lags: Sequence[float],
    used: dict[str, float],
    starved: float,
) -> None:
    """Print what a run took."""
    median, p99, worst = np.quantile(lags, [0.5, 0.99, 1.0])
    total = sum(used.values())
    print(
        f"{'+'.join(views)}: {written.events / took:,.0f} events/s for {took:.0f} s (behind by"
        f" {written.behind:.2f} s); freshness {median:.2f}, {p99:.2f}, {worst:.2f} s of"
        f" {len(lags)} answers; {written.events / total:,.0f} events/s and core:"
        f" {total / took:.2f} cores, "
        + ", ".join(
            f"{name} {seconds / took:.2f} ({seconds / written.events * 1e6:.2f} us)"
            for name, seconds in used.items()
        )
        + f"; waiting for a processor {starved:.2f}",
        flush=True,
    )


def compare(connection: Connection[Any], views: Sequence[str], count: int) -> None:
    """Fail if a view is not what DuckDB computes from all events so far."""
    parts = [nexmark.events(i, GENERATED) for i in range(0, count, GENERATED)]
    with duckdb.connect() as peer:
        for name in nexmark.SCHEMA:
            peer.register(name, pa.concat_tables([each[name] for each in parts]))
        for view in views:
            found = connection.execute(f"SELECT * FROM {view}".encode()).fetchall()
            check(found, peer.execute(in_duckdb(nexmark.VIEWS[view])).fetchall())


def _wait(connection: Connection[Any], events: int) -> int:
    """Wait until all bids of so many events are read; return how many these are."""
    bids = events // 50 * 46

    def read() -> bool:
        return (connection.execute(READ_BIDS.encode()).fetchone() or (None,))[0] == bids

    if events:
        until(read, "all bids are read", 300)
    return bids


def processor_seconds(server: Server) -> dict[str, float]:
    """Return the processor time so far of the ingestion process, the server and the replicas."""
    assert server.process is not None
    found = {"ingestion": 0.0, "server": 0.0, "replica": 0.0}
    for pid in server.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue  # it has ended
        name = "server" if pid == server.process.pid else "replica"
        if b"storage.ingest.main" in command:
            name = "ingestion"
        found[name] += (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return found


def waited_seconds(server: Server) -> float:
    """Return for how long threads of the server have waited for a processor so far."""
    found = 0
    for pid in server.processes():
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):  # it has ended
                found += int(path.read_text().split()[1])
    return found / 1e9


def memory(server: Server) -> str:
    """Return the memory of each process."""
    sizes = []
    for pid in sorted(server.processes()):
        try:
            name = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").split("-m ")[-1]
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (FileNotFoundError, IndexError):
            continue
        sizes.append(f"{name.split()[0]} {pages * os.sysconf('SC_PAGE_SIZE') >> 20} MB")
    return ", ".join(sizes)


def main() -> None:
    """Print the figures of each view."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("views", nargs="*", default=[*VIEWS])
    parser.add_argument("--rate", type=int, default=80_000, help="events a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm", type=float, default=3, help="seconds before")
    parser.add_argument("--skip", type=float, default=0.1, help="part whose answers do not count")
    parser.add_argument("--interval", type=int, default=100, help="TIMESTAMP INTERVAL in ms")
    parser.add_argument("--indexed", action="store_true", help="views with an index")
    parser.add_argument("--together", action="store_true", help="all views in one server")
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    for views in [options.views] if options.together else [[each] for each in options.views]:
        with feeding() as feed:
            measured(feed, argparse.Namespace(**{**vars(options), "views": views}))


if __name__ == "__main__":
    main()
