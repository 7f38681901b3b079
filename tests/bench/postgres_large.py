"""A large transaction upstream: time, memory, and how fresh other tables are meanwhile.

`python -m tests.bench.postgres_large [ROWS]`: one INSERT of so many rows of 60 bytes into a table of
the source. Another table gets a row each 20 ms, with the time, and is read here as often.
"""

import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.adapter.sources.publisher import options_of
from tests.bench.postgres import cpu, ingestion_of
from tests.harness import Server, initialised_postgres, running_postgres, until

TABLES = """
CREATE TABLE large (id int PRIMARY KEY, v bigint, t text);
CREATE TABLE ticks (id int PRIMARY KEY, at float8);
ALTER TABLE large REPLICA IDENTITY FULL;
ALTER TABLE ticks REPLICA IDENTITY FULL;
INSERT INTO ticks VALUES (1, extract(epoch FROM now()));
CREATE PUBLICATION p FOR ALL TABLES;
"""
FILL = "INSERT INTO large SELECT i, i, 'a text of some length ' || i FROM generate_series(1, %s) i"
SOURCE = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"


@dataclass
class Ticks:
    """Writes the time upstream and reads it here, until it is to stop."""

    url: str
    server: Server
    stopping: threading.Event = field(default_factory=threading.Event)
    late: list[tuple[float, float]] = field(default_factory=list)  # when, seconds behind

    def write(self) -> None:
        """Write the time again and again."""
        with psycopg.connect(self.url, autocommit=True) as upstream:
            while not self.stopping.wait(0.02):
                upstream.execute("UPDATE ticks SET at = %s", (time.time(),))

    def read(self) -> None:
        """Read how late it is here again and again."""
        with self.server.connect() as ours:
            while not self.stopping.wait(0.02):
                (row,) = ours.execute("SELECT at FROM ticks").fetchall()
                self.late.append((time.time(), time.time() - row[0]))

    def worst(self, begin: float, end: float) -> float:
        """Return the most seconds behind in a time."""
        return max((late for at, late in self.late if begin <= at <= end), default=0.0)


def resident(pid: int) -> int:
    """Return the greatest resident memory of a process so far in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Measure and print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    with initialised_postgres() as folder, tempfile.TemporaryDirectory() as data:
        settings = ("wal_level=logical", "max_wal_size=8GB")
        with running_postgres(folder, settings=settings) as url:
            server = Server(Path(data) / "data")
            with psycopg.connect(url, autocommit=True) as upstream:
                upstream.execute(TABLES)
                server.start()
                with server.connect() as ours:
                    ours.execute(f"CREATE CONNECTION pg TO POSTGRES ({options_of(url)})")
                    ours.execute(SOURCE)
                    until(lambda: bool(ours.execute("TABLE ticks").fetchall()), "rows are here")
                _measure(rows, upstream, Ticks(url, server))
            server.kill()


def _measure(rows: int, upstream: "psycopg.Connection[tuple[object, ...]]", ticks: Ticks) -> None:
    server = ticks.server
    assert server.process is not None
    threads = [threading.Thread(target=each) for each in (ticks.write, ticks.read)]
    for thread in threads:
        thread.start()
    time.sleep(5)
    (sender,) = upstream.execute("SELECT pid FROM pg_stat_replication").fetchall()
    pids = {
        "server": server.process.pid,
        "ingestion": ingestion_of(server),
        "WAL sender": int(str(sender[0])),
    }
    before = {name: (resident(pid), cpu(pid)) for name, pid in pids.items()}
    began = time.time()
    upstream.execute(FILL, (rows,))
    committed = time.time()
    with server.connect() as ours:
        counts: set[int] = set()

        def is_there() -> bool:
            (row,) = ours.execute("SELECT count(*) FROM large").fetchall()
            counts.add(row[0])
            return bool(row[0] == rows)

        until(is_there, "the transaction is here", 600)
    seen = time.time()
    time.sleep(3)
    ticks.stopping.set()
    for thread in threads:
        thread.join()
    assert counts <= {0, rows}, counts
    print(f"{rows} rows in one transaction: {committed - began:.1f} s upstream")
    print(f"here {seen - committed:.1f} s after its commit, whole")
    print(f"another table is {ticks.worst(began - 3, began):.2f} s behind before,")
    print(f"{ticks.worst(began, committed):.2f} s at worst until the commit,")
    print(f"{ticks.worst(committed, seen + 3):.2f} s at worst after it")
    for name, pid in pids.items():
        was, used = before[name]
        print(f"{name}: {was} to {resident(pid)} MB, {cpu(pid) - used:.1f} s of CPU")


if __name__ == "__main__":
    main()
