"""The CPU of reads, by process: `python -m tests.bench.reads [rounds]`.

pgbench runs each statement, prepared, over one connection, as often as `rounds` says. Shown are the
microseconds of processor time that a run takes in the server's own process and in its replicas, and
those that pass, beside those that pass for PostgreSQL. The two run in turns. A `change` is an UPDATE of one row of a table and the read of that row in a view over it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench.__main__ import both, execute
from tests.harness import Server, program

TURNS = 3
TABLES = (
    "CREATE TABLE carriers (k int PRIMARY KEY, name text)",
    "INSERT INTO carriers SELECT g, 'carrier ' || g FROM generate_series(1, 16) g",
    "CREATE TABLE trips (k int, delay int)",
    "INSERT INTO trips SELECT g % 16 + 1, g % 60 FROM generate_series(1, 100000) g",
)
GROUPS = (
    "SELECT c.k, c.name, count(*) AS trips, sum(t.delay) AS delay"
    " FROM carriers c JOIN trips t ON t.k = c.k GROUP BY c.k, c.name"
)
LINEAR = "SELECT k, upper(name) AS name FROM carriers WHERE k > 0"
SCRIPTS = {
    "row of a table by key": "\\set k random(1, 16)\nSELECT * FROM carriers WHERE k = :k;\n",
    "row of a view by key": "\\set k random(1, 16)\nSELECT * FROM by_carrier WHERE k = :k;\n",
    "first ten rows of a view": "SELECT * FROM by_carrier ORDER BY delay DESC LIMIT 10;\n",
    "all rows of a view": "SELECT * FROM by_carrier;\n",
    "change": (
        "\\set k random(1, 16)\n\\set n random(1, 100000)\n"
        "UPDATE carriers SET name = 'carrier ' || :n WHERE k = :k;\n"
        "SELECT * FROM names WHERE k = :k;\n"
    ),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of one run: of the server's processor, of its children's, and that pass."""

    server: float
    children: float
    passed: float


def cpu(pids: set[int]) -> float:
    """Return the seconds of processor time that some processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def pgbench(url: str, script: str, rounds: int) -> float:
    """Run a script so often, prepared; return the microseconds that pass for one run."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        command = ["-n", "-M", "prepared", "-c", "1", "-t", str(rounds), "-f", file.name, url]
        done = subprocess.run(
            [program("pgbench"), *command], capture_output=True, text=True, check=True
        )
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps = "))
    return 1e6 / float(line.split()[2])


def ours(server: Server, script: str, rounds: int) -> Cost:
    """Return the cost of a script for our server."""
    children = server.children()
    own = server.processes() - children
    before = cpu(own), cpu(children)
    passed = pgbench(server.url, script, rounds)
    after = cpu(own), cpu(children)
    server_us, children_us = (1e6 * (b - a) / rounds for a, b in zip(before, after, strict=True))
    return Cost(server_us, children_us, passed)


def middle(costs: list[Cost]) -> Cost:
    """Return the medians."""
    return Cost(
        statistics.median(each.server for each in costs),
        statistics.median(each.children for each in costs),
        statistics.median(each.passed for each in costs),
    )


def main(rounds: int) -> None:
    """Measure and print a table."""
    with both() as (server, url):
        execute(
            server.url,
            *TABLES,
            f"CREATE VIEW by_carrier AS {GROUPS}",
            "CREATE INDEX ON by_carrier (k)",
            f"CREATE VIEW names AS {LINEAR}",
            "CREATE INDEX ON names (k)",
            "SELECT * FROM by_carrier",
            "SELECT * FROM names",
        )
        execute(
            url,
            *TABLES,
            f"CREATE MATERIALIZED VIEW by_carrier AS {GROUPS}",
            "CREATE INDEX ON by_carrier (k)",
            f"CREATE VIEW names AS {LINEAR}",
        )
        print("| read | server (us) | replica | passed | PostgreSQL passed | ratio |")
        print("|---|---|---|---|---|---|")
        for name, script in SCRIPTS.items():
            pgbench(server.url, script, 200)
            costs, theirs = [], []
            for _ in range(TURNS):
                costs.append(ours(server, script, rounds))
                theirs.append(pgbench(url, script, rounds))
            cost, their = middle(costs), statistics.median(theirs)
            print(
                f"| {name} | {cost.server:.0f} | {cost.children:.0f} | {cost.passed:.0f}"
                f" | {their:.0f} | {their / cost.passed:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
