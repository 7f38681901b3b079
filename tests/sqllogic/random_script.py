"""Random statements over two tables, from a seed: rows, columns, keys and savepoints.

Names come from a few, so many statements fail: what has failed must have done nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from psycopg import pq

from tests.sqllogic.runner import Database, Failed

SCHEMA = "blocks"
TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, v int, w int DEFAULT 1)",
    "CREATE TABLE u (id int PRIMARY KEY, v int UNIQUE)",
    "CREATE SEQUENCE q",
    "CREATE VIEW by_v AS SELECT v, count(*) AS n FROM t GROUP BY v",
)


class Script:
    """The statements of one seed, without an end; `begins` come before them."""

    begins: tuple[str, ...] = ()

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.choose = random.Random(seed)

    def next(self, status: pq.TransactionStatus) -> str:
        """Return another statement, for a session that is in a block, a failed one, or in none."""
        chance = self.choose.random()
        if status == pq.TransactionStatus.INERROR and chance < 0.7:
            return self.choose.choice(("ROLLBACK TO a", "ROLLBACK TO b", "ROLLBACK"))
        if status == pq.TransactionStatus.IDLE and chance < 0.2:
            return "BEGIN"
        if status == pq.TransactionStatus.INTRANS and chance < 0.2:
            return self.choose.choice(("SAVEPOINT a", "SAVEPOINT b"))
        return self.choose.choice(self.kinds())()

    def kinds(self) -> list[Callable[[], str]]:
        """Return what makes a statement, more often what stands there more often."""
        return [
            *[self.insert] * 6,
            *[self.upsert] * 4,
            *[self.update] * 5,
            *[self.delete] * 3,
            *[self.merge] * 2,
            *[self.select] * 6,
            *[self.alter] * 7,
            *[self.block] * 3,
            self.truncate,
            self.index,
            self.table,
        ]

    def _table(self) -> str:
        return self.choose.choice(("t", "t", "t", "u"))

    def _column(self) -> str:
        return self.choose.choice(("v", "v", "w", "x", "y"))

    def _key(self) -> int:
        return self.choose.randrange(1, 12)

    def _name(self) -> str:
        return self.choose.choice(("k1", "k2", "k3"))

    def _value(self) -> str:
        return self.choose.choice((*map(str, range(6)), "NULL", "DEFAULT"))

    def insert(self) -> str:
        rows = ", ".join(
            f"({self._key()}, {self._value()})" for _ in range(self.choose.choice((1, 1, 1, 2, 3)))
        )
        returning = self.choose.choice(("", "", " RETURNING *", " RETURNING id, id + 1"))
        if self.choose.random() < 0.2:
            source = f"SELECT id + {self._key()}, {self._column()} FROM {self._table()}"
            return f"INSERT INTO {self._table()} (id, {self._column()}) {source}{returning}"
        return f"INSERT INTO {self._table()} (id, {self._column()}) VALUES {rows}{returning}"

    def upsert(self) -> str:
        table, column = self._table(), self._column()
        target = self.choose.choice(("(id)", "(id)", "(v)", f"({column})"))
        does = self.choose.choice(
            (
                "DO NOTHING",
                f"DO UPDATE SET {column} = excluded.{column}",
                f"DO UPDATE SET v = {table}.v + 1",
            )
        )
        if does == "DO NOTHING" and self.choose.random() < 0.5:
            target = ""
        return (
            f"INSERT INTO {table} (id, {column}) VALUES ({self._key()}, {self._value()})"
            f" ON CONFLICT {target} {does} RETURNING *"
        )

    def update(self) -> str:
        where = self.choose.choice(
            (
                f"id = {self._key()}",
                f"id = {self._key()}",
                f"id IN ({self._key()}, {self._key()})",
                "v > 2",
            )
        )
        # PostgreSQL looks at keys row by row: of several rows none may get what another still has.
        values = (self._value(), "v + 1", "id") if where.startswith("id =") else (self._value(),)
        value = self.choose.choice(values)
        returning = self.choose.choice(("", " RETURNING *"))
        return f"UPDATE {self._table()} SET {self._column()} = {value} WHERE {where}{returning}"

    def delete(self) -> str:
        where = self.choose.choice(
            (
                f"id = {self._key()}",
                f"id IN ({self._key()}, {self._key()})",
                f"{self._column()} = 3",
            )
        )
        return f"DELETE FROM {self._table()} WHERE {where} RETURNING id"

    def merge(self) -> str:
        return (
            f"MERGE INTO {self._table()} AS a USING (VALUES ({self._key()}, 1), (20, 2)) AS s (k, n)"
            f" ON a.id = s.k WHEN MATCHED AND a.{self._column()} > 3 THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {self._column()} = s.n"
            " WHEN NOT MATCHED AND s.k < 20 THEN INSERT (id) VALUES (s.k)"
        )

    def select(self) -> str:
        return self.choose.choice(
            (
                f"SELECT * FROM {self._table()}",
                f"SELECT * FROM {self._table()} WHERE id = {self._key()}",
                f"SELECT * FROM {self._table()} WHERE v = {self.choose.randrange(6)}",
                f"SELECT id FROM {self._table()} WHERE id IN ({self._key()}, {self._key()})",
                f"SELECT count({self._column()}), min(v) FROM {self._table()}",
                "SELECT * FROM by_v",
                "SELECT * FROM kept",
                "SELECT * FROM t JOIN u ON t.id = u.id",
            )
        )

    def alter(self) -> str:
        column, name = self._column(), self._name()
        return f"ALTER TABLE {self._table()} " + self.choose.choice(
            (
                f"ADD COLUMN {column} int",
                f"ADD COLUMN {column} int DEFAULT {self.choose.randrange(4)}",
                f"ADD COLUMN IF NOT EXISTS {column} int NOT NULL DEFAULT 1",
                f"DROP COLUMN {column}",
                f"DROP COLUMN IF EXISTS {column}",
                f"RENAME COLUMN {column} TO {self._column()}",
                f"ADD CONSTRAINT {name} UNIQUE ({column})",
                f"ADD CONSTRAINT {name} UNIQUE (id, {column})",
                f"ADD CONSTRAINT {name} UNIQUE (id)",
                f"ADD CONSTRAINT {name} CHECK ({column} <> 4)",
                f"DROP CONSTRAINT {name}",
                f"DROP CONSTRAINT IF EXISTS {name}",
                f"RENAME CONSTRAINT {name} TO {self._name()}",
                f"ALTER COLUMN {column} SET DEFAULT {self.choose.randrange(6)}",
                f"ALTER COLUMN {column} DROP DEFAULT",
                f"ALTER COLUMN {column} SET NOT NULL",
                f"ALTER COLUMN {column} DROP NOT NULL",
                f"DROP COLUMN {column}, ADD COLUMN {column} int DEFAULT 2",
            )
        )

    def index(self) -> str:
        return self.choose.choice(
            (
                f"CREATE UNIQUE INDEX {self._name()} ON {self._table()} ({self._column()})",
                f"CREATE UNIQUE INDEX {self._name()} ON {self._table()} (id)",
                f"DROP INDEX {self._name()}",
                f"ALTER INDEX {self._name()} RENAME TO {self._name()}",
            )
        )

    def table(self) -> str:
        return self.choose.choice(
            (
                "ALTER TABLE u RENAME TO other",
                "ALTER TABLE other RENAME TO u",
                "CREATE TABLE IF NOT EXISTS u (id int PRIMARY KEY, v int)",
                "DROP TABLE IF EXISTS other",
            )
        )

    def truncate(self) -> str:
        return f"TRUNCATE {self._table()}"

    def block(self) -> str:
        savepoint = self.choose.choice(("a", "b"))
        return self.choose.choice(
            (
                *["COMMIT"] * 3,
                "ROLLBACK",
                *[f"ROLLBACK TO {savepoint}"] * 2,
                f"RELEASE {savepoint}",
            )
        )


DATA = ";\n"  # between COPY ... FROM STDIN and what it is sent
Outcome = tuple[str, list[str]]

# What we refuse and PostgreSQL does not: to drop a key on which a view that is maintained relies,
# and a CHECK with the name of a unique index of the table.
OUR_LIMITS = ("2BP01", "42710")
# What PostgreSQL refuses and we do not: to alter what a cursor is open over.
THEIR_LIMITS = ("55006",)
# A sequence is at its end: how many numbers the statement drew before, from it and from others,
# differs.
EXHAUSTED = "2200H"


def outcome(database: Database, sql: str) -> Outcome:
    """Return the code of a statement's error, or none and its rows in some order.

    What COPY reads stands after DATA.
    """
    sql, _, data = sql.partition(DATA)
    try:
        return "", sorted(database.run(sql, data))
    except Failed as failed:
        return failed.sqlstate, []


def agree(given: Outcome, wanted: Outcome) -> bool:
    """Whether both give the same rows, or both fail.

    Of several things that are wrong with a statement each may name another first, but not what
    constraints say for what is wrong with its text or its place.
    """
    codes = given[0], wanted[0]
    if all(codes) and given[0] not in ("XX000", "40001"):
        return all(codes[0].startswith(each) == codes[1].startswith(each) for each in ("23", "25"))
    return given == wanted


def connected(url: str, *, is_foreshore: bool) -> Database:
    """Return a session for a script."""
    database = Database(url, is_foreshore=is_foreshore)
    for sql in ("SET client_min_messages = error", f"SET search_path = {SCHEMA}"):
        database.run(sql)
    return database


def prepare(database: Database) -> None:
    """Make a schema with the tables and views of a script."""
    for sql in (
        f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE",
        f"CREATE SCHEMA {SCHEMA}",
        *TABLES,
    ):
        database.run(sql)
    database.view("kept", "SELECT id, v FROM t WHERE v > 1")
    if database.is_foreshore:
        database.run("CREATE INDEX ON by_v (v)")
