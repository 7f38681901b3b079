"""Prepared look-ups beside PostgreSQL: `python -m tests.bench.lookups [seconds] [connections ...]`.

pgbench runs each statement, prepared, over so many connections. PostgreSQL has the same rows in a
table with a primary key. The two run in turns. Shown are the medians of look-ups a second, of the
turns' ratios, and of the microseconds of processor time that a look-up takes in the server's
process (of PostgreSQL: in all of its own) and in pgbench.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.__main__ import execute
from tests.harness import Server, postgres, program

TURNS = 3
PLAIN = ("-m", "foreshore.server.main")  # without the guard of the tests, which costs time
ROWS = 20_000
TABLE = (
    "CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance int)",
    f"INSERT INTO accounts SELECT g, 'owner ' || g, g % 1000 FROM generate_series(1, {ROWS}) g",
)
BY_ID = f"\\set id random(1, {ROWS})\nSELECT * FROM {{}} WHERE id = :id;\n"
SCRIPTS = {
    "row of an indexed view": (BY_ID.format("v"), BY_ID.format("accounts")),
    "row of a table by key": (BY_ID.format("accounts"), BY_ID.format("accounts")),
    "constant": ("SELECT 1;\n", "SELECT 1;\n"),
    "ten look-ups in a pipeline": tuple(
        "\\startpipeline\n" + 10 * BY_ID.format(table) + "\\endpipeline\n"
        for table in ("v", "accounts")
    ),
}


@dataclass(frozen=True, slots=True)
class Turn:
    """Transactions a second, and microseconds of each: of the server's and pgbench's processor."""

    rate: float
    server: float
    client: float


def cpu(pids: set[int]) -> float:
    """Return the seconds of processor time that processes, and their ended children, have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def pgbench(url: str, script: str, connections: int, seconds: int, pids: set[int]) -> Turn:
    """Run a script for so long, prepared, over some connections."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        before, mine = cpu(pids), cpu({os.getpid()})
        done = subprocess.run(
            [
                *(program("pgbench"), "-n", "-M", "prepared", "-c", str(connections)),
                *("-j", "1", "-T", str(seconds), "-f", file.name, url),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        time.sleep(0.3)  # until PostgreSQL has counted its backends, which have ended
        after, client = cpu(pids), cpu({os.getpid()}) - mine
    said = {line.partition(" ")[0]: line for line in done.stdout.splitlines()}
    count = next(
        int(line.rpartition(":")[2].partition("/")[0])
        for line in done.stdout.splitlines()
        if line.startswith("number of transactions actually processed")
    )
    rate = float(said["tps"].split()[2])
    return Turn(rate, 1e6 * (after - before) / count, 1e6 * client / count)


def family(pid: int) -> set[int]:
    """Return a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {pid, *map(int, children)}


@contextmanager
def both() -> Iterator[tuple[Server, str]]:
    """Run a Foreshore without the guard of the tests, and a PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder, ExitStack() as stack:
        server = Server(Path(folder) / "data", program=PLAIN)
        stack.callback(server.stop)
        yield server.start(), stack.enter_context(postgres())


def main(seconds: int, counts: list[int]) -> None:
    """Measure and print a table."""
    with both() as (server, url):
        execute(server.url, *TABLE, "CREATE VIEW v AS SELECT id, owner, balance FROM accounts")
        execute(server.url, "CREATE INDEX ON v (id)", *["SELECT * FROM v WHERE id = 1"] * 5)
        execute(url, *TABLE, "VACUUM ANALYZE accounts")
        ours_pids = server.processes() - server.children()
        (postmaster,) = postmasters(url)
        print("| look-up | connections | a second | PostgreSQL | ratio | server (us) |", end="")
        print(" PostgreSQL (us) | pgbench (us) |")
        print("|---|---|---|---|---|---|---|---|")
        for name, (script, reference) in SCRIPTS.items():
            pgbench(server.url, script, 1, 1, ours_pids)
            for count in counts:
                turns = [
                    (
                        pgbench(server.url, script, count, seconds, ours_pids),
                        pgbench(url, reference, count, seconds, family(postmaster)),
                    )
                    for _ in range(TURNS)
                ]
                ratio = statistics.median(a.rate / b.rate for a, b in turns)
                ours, theirs = (median([turn[i] for turn in turns]) for i in (0, 1))
                print(
                    f"| {name} | {count} | {ours.rate:,.0f} | {theirs.rate:,.0f} | {ratio:.2f}"
                    f" | {ours.server:.0f} | {theirs.server:.0f} | {ours.client:.0f} |",
                    flush=True,
                )


def median(turns: list[Turn]) -> Turn:
    """Return the medians."""
    columns = zip(*((each.rate, each.server, each.client) for each in turns), strict=True)
    return Turn(*map(statistics.median, columns))


def postmasters(url: str) -> set[int]:
    """Return the process that listens at an address of PostgreSQL's."""
    port = url.rpartition(":")[2].partition("/")[0]
    found = set()
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if words[0].endswith(b"postgres") and port.encode() in words:
            found.add(int(each.parent.name))
    return found


if __name__ == "__main__":
    given = list(map(int, sys.argv[1:]))
    main(given[0] if given else 5, given[1:] or [1, 8, 64])
