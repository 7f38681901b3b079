"""New texts beside PostgreSQL: `python -m tests.bench.new_texts [texts] [FORM ...]`.

Each Query message has a text that the server has not seen, as the values are written into it, over
one connection. Shown are the microseconds of processor time of the server for each, texts a second,
and the ratio to PostgreSQL's; last the seconds of one message of 20,000 different `SELECT n`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.__main__ import execute
from tests.bench.lookups import family, postmasters
from tests.harness import Server, postgres
from tests.wire.raw import Raw

PLAIN = ("-m", "foreshore.server.main")
ROWS = 20_000
WARM = 30
SETUP = (
    "CREATE TABLE acc (a int PRIMARY KEY, b int, c text, r int)",
    "CREATE TABLE pl (a int PRIMARY KEY, b int, c text)",
    "CREATE TABLE br (k int PRIMARY KEY, n text)",
    "CREATE TABLE ins (a bigint PRIMARY KEY, t text, p numeric(8, 2), d date)",
    "CREATE INDEX ON acc (r)",
    "INSERT INTO br SELECT i, 'n' || i FROM generate_series(0, 999) i",
    f"INSERT INTO acc SELECT i, i % 1000, 'text ' || i, i % 1000 FROM generate_series(1, {ROWS}) i",
    f"INSERT INTO pl SELECT i, 0, 'text ' || i FROM generate_series(1, {ROWS}) i",
)
# `{n}` and `{m}` are keys, `{u}` is a number that no text had.
FORMS = {
    "constant": "SELECT {u}",
    "string": "SELECT 'x{u}'",
    "key": "SELECT b FROM acc WHERE a = {n}",
    "two conditions": "SELECT b FROM acc WHERE a = {n} AND b >= {m} - 30000",
    "cast": "SELECT b FROM acc WHERE a = {n}::int",
    "string key": "SELECT b FROM acc WHERE a = '{n}'",
    "CTE": "WITH x AS (SELECT * FROM acc WHERE a = {n}) SELECT b FROM x",
    "expression": "SELECT b + {m}, upper(c), 'k{n}' || c FROM acc WHERE a = {n}",
    "coalesce": "SELECT coalesce(c, 'none {m}') FROM acc WHERE a = {n}",
    "CASE": "SELECT CASE WHEN b > {m} THEN 'over' ELSE 'under' END FROM acc WHERE a = {n}",
    "LIMIT 1": "SELECT b FROM acc WHERE a = {n} LIMIT 1",
    "ORDER BY LIMIT": "SELECT b FROM acc WHERE a IN ({n}, {m}) ORDER BY b LIMIT 1",
    "count": "SELECT count(*) FROM acc WHERE a = {n}",
    "EXISTS": "SELECT EXISTS (SELECT 1 FROM acc WHERE a = {n})",
    "IN": "SELECT b FROM acc WHERE a IN ({n}, {m})",
    "OR": "SELECT b FROM acc WHERE a = {n} OR a = {m}",
    "UNION ALL": "SELECT b FROM acc WHERE a = {n} UNION ALL SELECT b FROM acc WHERE a = {m}",
    "join": "SELECT acc.b, br.n FROM acc JOIN br ON br.k = acc.r WHERE acc.a = {n}",
    "left join": "SELECT acc.b, br.n FROM acc LEFT JOIN br ON br.k = acc.r WHERE acc.a = {n}",
    "range": "SELECT b FROM acc WHERE a BETWEEN {n} AND {n} + 5",
    "secondary": "SELECT a FROM acc WHERE r = {m} % 1000 LIMIT 5",
    "LIKE": "SELECT a FROM acc WHERE a = {n} AND c LIKE 'text {n}%'",
    "insert": "INSERT INTO ins VALUES ({u}, 'it''s {m}', {m}.50, '2024-01-02')",
    "insert rows": "INSERT INTO ins (a, t) VALUES ({u}0, 'x{n}'), ({u}1, 'y{m}')",
    "returning": "INSERT INTO ins (a, t) VALUES ({u}, 'x{n}') RETURNING a, t",
    "on conflict": "INSERT INTO ins (a, t) VALUES ({n}, 'x{u}') ON CONFLICT (a) DO UPDATE SET t = excluded.t",
    "conflict nothing": "INSERT INTO ins (a, t) VALUES ({n}, 'x{u}') ON CONFLICT DO NOTHING",
    "update": "UPDATE pl SET b = b + {m} WHERE a = {n}",
    "update string": "UPDATE pl SET c = 'z{u}', b = {m} WHERE a = {n}",
    "update returning": "UPDATE pl SET b = {m} WHERE a = {n} RETURNING b",
    "delete": "DELETE FROM ins WHERE a = {u}",
}


def cpu(pids: set[int]) -> float:
    """Return the seconds of processor time that the processes of a server that are left used."""
    ticks = 0
    for pid in pids:
        with suppress(FileNotFoundError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Texts:
    """Sends texts to a server, and counts the processor time that its processes use."""

    def __init__(self, url: str, user: str, database: str) -> None:
        self.raw = Raw(urlsplit(url).port or 0, start=False)
        self.raw.startup(user=user, database=database)
        self.raw.until("Z")

    def run(self, text: str) -> None:
        """Run a text; raises an error that the server sends."""
        self.raw.send("Q", text.encode() + b"\0")
        for code, body in self.raw.until("Z"):
            if code == "E":
                raise RuntimeError(f"{text}: {body!r}")

    def measure(self, form: str, texts: int, pids: set[int], first: int) -> tuple[float, float]:
        """Return the microseconds of the server for each of so many texts, and texts a second."""
        made = [
            form.format(n=i * 37 % ROWS + 1, m=i * 53 % ROWS + 1, u=first + i)
            for i in range(texts + WARM)
        ]
        for text in made[:WARM]:
            self.run(text)
        before, began = cpu(pids), time.perf_counter()
        for text in made[WARM:]:
            self.run(text)
        took, used = time.perf_counter() - began, cpu(pids) - before
        return 1e6 * used / texts, texts / took


def main(texts: int, names: list[str]) -> None:
    """Measure and print a table."""
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder, ExitStack() as stack:
        server = Server(Path(folder) / "data", program=PLAIN)
        stack.callback(server.stop)
        server.start()
        url = stack.enter_context(postgres())
        for each in (server.url, url):
            execute(each, *SETUP)
        execute(url, "VACUUM ANALYZE acc, pl, br")
        ours = Texts(server.url, "foreshore", "foreshore")
        theirs = Texts(url, "postgres", "postgres")
        pids = server.processes() - server.children()
        (postmaster,) = postmasters(url)
        numbers = count(1_000_000, 1_000_000)
        print(
            "| form | us | a second | PostgreSQL (us) | a second | ratio |\n|---|---|---|---|---|---|"
        )
        for name in names or FORMS:
            first = next(numbers)
            us, rate = ours.measure(FORMS[name], texts, pids, first)
            their_us, their_rate = theirs.measure(FORMS[name], texts, family(postmaster), first)
            ratio = rate / their_rate
            print(f"| {name} | {us:.0f} | {rate:,.0f} | {their_us:.0f} | {their_rate:,.0f}", end="")
            print(f" | {ratio:.2f} |", flush=True)
        for client, used in ((ours, pids), (theirs, family(postmaster))):
            before, began = cpu(used), time.perf_counter()
            client.run(";".join(f"SELECT {i}" for i in range(20_000)))
            took = time.perf_counter() - began
            print(f"20,000 SELECT n: {took:.2f} s, {cpu(used) - before:.2f} s of processor time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, sys.argv[2:])
