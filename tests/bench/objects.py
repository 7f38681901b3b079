"""Thousands of tables and views: `python -m tests.bench objects [N ...]`.

For each N a server gets N objects: three tables with a key to one view, in transactions of 500 as
migrations make them. Each figure is processor time of the server, in milliseconds, measured with few
objects and again with N; what is printed is both and their ratio.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness import Server, program

FEW = 50
AT_ONCE = 500  # objects of a transaction
TABLE = "CREATE TABLE {} (id int PRIMARY KEY, tenant int NOT NULL, name text, made timestamp)"
VIEW = "CREATE VIEW {} AS SELECT id, name FROM {} WHERE tenant = 1"
IDLE_SECONDS = 6.0


class Objects:
    """A server that gets more and more objects."""

    def __init__(self, data_dir: Path) -> None:
        self.server = Server(data_dir, program=("-m", "foreshore.server.main"))
        self.count = 0
        self.first: dict[str, float] = {}

    def cpu(self, work: Callable[[], object], times: int = 1) -> float:
        """Return the milliseconds of the server's processor time for one of `times` rounds."""
        before = self.server.processor_seconds()
        for _ in range(times):
            work()
        return (self.server.processor_seconds() - before) * 1e3 / times

    def show(self, name: str, figure: float) -> None:
        """Print a figure, beside that with few objects."""
        few = self.first.setdefault(name, figure)
        ratio = f"{figure / few:.2f}" if few else "-"
        print(f"| {self.count} | {name} | {few:.2f} | {figure:.2f} | {ratio} |", flush=True)

    def grow(self, count: int) -> None:
        """Make objects until there are `count`, in bulk."""
        made = count - self.count

        def bulk() -> None:
            with self.server.connect() as connection:
                while self.count < count:
                    with connection.transaction():
                        for at in range(self.count, min(self.count + AT_ONCE, count)):
                            base = f"t{at - 1}"
                            sql = (
                                VIEW.format(f"v{at}", base)
                                if at % 4 == 3
                                else TABLE.format(f"t{at}")
                            )
                            connection.execute(sql.encode())
                    self.count = min(self.count + AT_ONCE, count)

        self.show("an object made in bulk", self.cpu(bulk) / made)

    def measure(self) -> None:
        """Print all figures with the objects that there are."""
        time.sleep(3)
        idle = self.cpu(lambda: time.sleep(IDLE_SECONDS))
        self.show("a second when idle", idle / IDLE_SECONDS)
        with self.server.connect(prepare_threshold=0) as connection:
            connection.execute("DROP TABLE IF EXISTS accounts, history")
            numbers = iter(range(1_000_000))

            def create() -> None:
                connection.execute(TABLE.format(f"new{self.count}_{next(numbers)}").encode())

            def drop() -> None:
                connection.execute(f"DROP TABLE new{self.count}_{next(numbers)}".encode())

            create()
            self.show("CREATE TABLE", self.cpu(create, 40))
            numbers = iter(range(41))
            self.show("DROP TABLE", self.cpu(drop, 41))
            connection.execute("CREATE TABLE accounts (id int PRIMARY KEY, balance int)")
            connection.execute("CREATE TABLE history (id int, delta int)")
            connection.execute("INSERT INTO accounts SELECT g, 0 FROM generate_series(1, 10000) g")

            def look_up() -> None:
                connection.execute("SELECT balance FROM accounts WHERE id = %s", (7,))

            def commit() -> None:
                connection.execute("INSERT INTO history VALUES (%s, %s)", (1, 2))

            def transact() -> None:
                with connection.transaction():
                    connection.execute(
                        "UPDATE accounts SET balance = balance + 1 WHERE id = %s", (5,)
                    )
                    connection.execute("SELECT balance FROM accounts WHERE id = %s", (5,))
                    connection.execute("INSERT INTO history VALUES (%s, %s)", (5, 1))

            for name, work in (
                ("a look-up", look_up),
                ("a commit", commit),
                ("a transaction", transact),
            ):
                self.cpu(work, 50)
                self.show(name, self.cpu(work, 500))

            def after_change(*arguments: str) -> float:
                total = 0.0
                for number in range(3):
                    connection.execute(f"CREATE TABLE changed{number} (i int PRIMARY KEY)".encode())
                    total += self.cpu(lambda: self.psql(*arguments))
                    connection.execute(f"DROP TABLE changed{number}".encode())
                return total / 3

            self.show("\\d after DDL", after_change("-c", "\\d"))
            self.show("\\d of a table after DDL", after_change("-c", "\\d t0"))
            self.show("reflection of a table after DDL", after_change(*reflection()))

    def psql(self, *arguments: str) -> None:
        """Run psql, and throw away what it prints."""
        command = [program("psql"), "-X", self.server.url, "-v", "ON_ERROR_STOP=1", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def restart(self) -> None:
        """Print what a start costs until the first connection, and in the five seconds after."""
        self.server.stop()
        began = time.perf_counter()
        self.server.start()
        with self.server.connect() as connection:
            connection.execute("SELECT 1")
            self.show("a start to the first answer", self.server.processor_seconds() * 1e3)
            self.show("the same, by the clock", (time.perf_counter() - began) * 1e3)
            self.show("the five seconds after", self.cpu(lambda: time.sleep(5)))


def reflection() -> list[str]:
    """Return what an ORM asks about one table, as arguments of psql."""
    oid = "'t0'::regclass"
    queries = (
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
        " (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d"
        " WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum)"
        f" FROM pg_attribute a WHERE a.attrelid = {oid} AND a.attnum > 0 ORDER BY a.attnum",
        "SELECT c.conname, pg_get_constraintdef(c.oid), c.conkey FROM pg_constraint c"
        f" WHERE c.conrelid = {oid}",
        "SELECT i.relname, x.indisunique, x.indkey FROM pg_index x"
        f" JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indrelid = {oid}",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
    )
    return [part for query in queries for part in ("-c", query)]


def main(counts: list[int]) -> None:
    """Print the figures at each count, in a server of its own."""
    print("| objects | of what, in ms | with few | with these | ratio |\n|---|---|---|---|---|")
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
            objects = Objects(Path(folder) / "data")
            objects.server.start()
            try:
                for each in (FEW, count):
                    objects.grow(each)
                    objects.measure()
                    objects.restart()
            finally:
                objects.server.stop()
