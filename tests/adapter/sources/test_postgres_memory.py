"""A transaction and a snapshot of some hundred megabytes take little memory of either process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from foreshore.memory import own_bytes
from tests.adapter.sources.publisher import drop_slots, options_of
from tests.harness import Server, until

pytestmark = pytest.mark.slow

ROWS = 1_500_000  # of some 200 bytes
TABLES = """
DROP PUBLICATION IF EXISTS p;
DROP SCHEMA IF EXISTS large CASCADE;
CREATE SCHEMA large;
CREATE TABLE large.t (id bigint NOT NULL, v text, w text);
ALTER TABLE large.t REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE large.t;
"""
SOURCE = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"
STATISTICS = "mz_internal.mz_source_statistics"
LIMIT = 300 << 20  # of what a process takes more than before


class Peaks:
    """The most memory of its own that each process of a server has had."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stopping = threading.Event()
        self.most: dict[str, int] = {}

    def now(self) -> dict[str, int]:
        """Return the memory of the server and of its ingestion process."""
        found = {}
        for pid in self._server.processes():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"ingest.main" in command:
                found["ingestion"] = own_bytes(pid)
            elif self._server.process is not None and pid == self._server.process.pid:
                found["server"] = own_bytes(pid)
        return found

    def run(self) -> None:
        while not self._stopping.wait(0.05):
            for name, size in self.now().items():
                self.most[name] = max(size, self.most.get(name, 0))

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()


def test_a_large_transaction_and_a_large_snapshot_are_bounded(
    tmp_path: Path, publisher_url: str
) -> None:
    drop_slots(publisher_url)
    server = Server(tmp_path / "data").start()
    count = "SELECT count(*), sum(id) FROM {}"
    with psycopg.connect(publisher_url, autocommit=True) as upstream, server.connect() as ours:
        upstream.execute(TABLES)
        ours.execute(f"CREATE CONNECTION pg TO POSTGRES ({options_of(publisher_url)})")
        ours.execute(SOURCE)
        state = "SELECT status FROM mz_internal.mz_source_statuses WHERE name = 's'"
        until(lambda: ours.execute(state).fetchall() == [("running",)], "it runs")

        def same() -> bool:
            theirs = upstream.execute(count.format("large.t").encode()).fetchall()
            return ours.execute(count.format("t")).fetchall() == theirs

        filled = (
            "INSERT INTO large.t SELECT i, md5(i::text) || repeat('x', 68), md5(i::text)"
            f" || repeat('y', 60) FROM generate_series(1, {ROWS}) i"
        )
        before = Peaks(server).now()
        transaction, snapshot, difference = Peaks(server), Peaks(server), Peaks(server)
        bases = [before]
        with transaction.watched():
            upstream.execute(filled.encode())
            until(same, "the transaction is here", 240)
        bases.append({**before, **Peaks(server).now()})
        with snapshot.watched():
            ours.execute("DROP SOURCE s CASCADE")
            ours.execute(SOURCE)
            until(same, "the snapshot is here", 240)
        bases.append({**before, **Peaks(server).now()})
        with difference.watched():
            drop_slots(publisher_url)
            upstream.execute("UPDATE large.t SET id = -id WHERE id <= 1000")
            until(same, "the difference is here", 240)
            updates = f"SELECT max(updates_committed) = {ROWS + 2000} FROM {STATISTICS}"
            assert ours.execute(updates.encode()).fetchall() == [(True,)]
        ours.execute("DROP SOURCE s CASCADE")
    server.stop()
    found = [
        {name: most - base[name] for name, most in peaks.most.items()}
        for peaks, base in zip((transaction, snapshot, difference), bases, strict=True)
    ]
    print([{name: f"{size >> 20} MB" for name, size in more.items()} for more in found])
    assert all(size < LIMIT for more in found for size in more.values()), found
