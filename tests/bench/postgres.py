"""CPU of a PostgreSQL source beside pg_recvlogical, which writes the same stream to /dev/null.

`python -m tests.bench.postgres [TRANSACTIONS]`: pgbench's, of four clients at scale 10, all of which
are there when either begins to read. The share of the server is that of its commits.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from tests.adapter.sources.publisher import options_of
from tests.harness import Server, initialised_postgres, program, until
from tests.kill.test_postgres_source import SOURCE, Upstream, caught_up

TICKS = os.sysconf("SC_CLK_TCK")
SLOT = "SELECT pg_create_logical_replication_slot('beside', 'pgoutput')"


def main() -> None:
    """Measure and print."""
    transactions = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    with initialised_postgres() as folder, tempfile.TemporaryDirectory() as data:
        upstream, server = Upstream(folder), Server(Path(data) / "data")
        upstream.start()
        upstream.prepare(10)
        server.start()
        with server.connect() as ours:
            ours.execute(f"CREATE CONNECTION pg TO POSTGRES ({options_of(upstream.url)})")
            ours.execute(SOURCE)
        caught_up(server, upstream)
        time.sleep(5)  # until what was loaded is compacted
        ingestion, main_process = ingestion_of(server), server.process
        assert main_process is not None
        with psycopg.connect(upstream.url, autocommit=True) as theirs:
            theirs.execute(SLOT)
            os.kill(ingestion, signal.SIGSTOP)
            count = str(transactions // 4)
            assert upstream.pgbench("-n", "-c", "4", "-t", count).wait() == 0
            (end,) = theirs.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone() or ("",)
        before = cpu(ingestion), cpu(main_process.pid)
        os.kill(ingestion, signal.SIGCONT)
        caught_up(server, upstream)
        ours_, servers = cpu(ingestion) - before[0], cpu(main_process.pid) - before[1]
        received = recvlogical(upstream, str(end))
        server.stop()
        upstream.crash()
    print(f"{transactions} transactions, 4 changes each")
    print(f"ingestion {ours_:.2f} s, server {servers:.2f} s, pg_recvlogical {received:.2f} s")
    print(f"ingestion {ours_ / received:.1f} times pg_recvlogical")


def cpu(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(found[11]) + int(found[12])) / TICKS


def ingestion_of(server: Server) -> int:
    """Return the ingestion process of a server."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [
            pid
            for pid in server.processes()
            if b"ingest.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        return bool(found)

    until(is_there, "there is an ingestion process")
    return found[0]


def recvlogical(upstream: Upstream, end: str) -> float:
    """Return the processor time of pg_recvlogical for all up to `end`."""
    reach = ("-h", "127.0.0.1", "-p", str(upstream.port), "-U", "postgres", "-d", "postgres")
    options = ("-o", "proto_version=1", "-o", "publication_names=p")
    process = subprocess.Popen(
        [
            *(program("pg_recvlogical"), *reach, "--slot", "beside", "--start", *options),
            *("--endpos", end, "--no-loop", "-f", "/dev/null"),
        ]
    )
    _, _, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
