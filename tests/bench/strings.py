"""Strings that come and go: `python -m tests.bench.strings [--rows N] [--rounds N]`.

A table has a string in each row, and a view counts them. In each round all strings are replaced by
others, in one transaction. What must stay flat is the number of strings, and the memory, of the
replica: state has the rows of the last few rounds, and a cycle begins when there are twice as many
strings as after the one before. The view is compared with the table at the end of each round.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.harness import Server

SIZES = (
    "SELECT coalesce(sum(records), 0)::int8, coalesce(sum(size), 0)::int8"
    " FROM mz_introspection.mz_arrangement_sizes WHERE name = 'strings'"
)


def resident(server: Server) -> int:
    """Return the bytes that the replica has in memory."""
    pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in server.children())
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print the figures of each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        server = Server(Path(folder) / "data", (), program=("-m", "foreshore.server.main"))
        try:
            run(server.start(), options.rows, options.rounds)
        finally:
            server.stop()


def run(server: Server, rows: int, rounds: int) -> None:
    """Replace all strings, round after round."""
    connection = server.connect()
    connection.execute("CREATE TABLE t (k int PRIMARY KEY, v text NOT NULL)")
    connection.execute(
        "CREATE VIEW counts AS SELECT a.v, count(*) AS n, max(b.v) AS most"
        " FROM t AS a JOIN t AS b ON a.k = b.k GROUP BY a.v"
    )
    connection.execute("CREATE INDEX ON counts (v)")
    print("round | strings | their bytes | replica MB")
    for number in range(rounds):
        with connection.transaction():
            connection.execute("DELETE FROM t")
            with connection.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write("".join(f"{k}\tthe string {k} of {number}\n" for k in range(rows)))
        read = "SELECT count(*), min(v), max(most), sum(n) FROM counts"
        found = connection.execute(read).fetchall()
        texts = [f"the string {k} of {number}" for k in range(rows)]
        assert found == [(rows, min(texts), max(texts), rows)], found
        ((strings, size),) = connection.execute(SIZES).fetchall()
        print(f"{number} | {strings} | {size} | {resident(server) >> 20}", flush=True)
    assert rounds < 20 or int(strings) < 15 * rows, "strings are not forgotten"


if __name__ == "__main__":
    main()
