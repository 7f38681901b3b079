"""Random statements over sequences, by COPY, over temporary tables and with cursors."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import pq

from tests.sqllogic.random_script import DATA, SCHEMA, Script


class Numbers(Script):
    """Sequences, serial and identity columns.

    Nobody promises how many numbers a statement draws that fails, so none is about many rows, nor
    in which order it draws for two columns, so these have sequences of their own. ALTER SEQUENCE
    without RESTART gives no numbers back when it is rolled back (docs/adapter.md), as PostgreSQL
    does, so it stands outside of blocks.
    """

    begins = (
        "CREATE SEQUENCE s",
        "CREATE TABLE n (id serial PRIMARY KEY, v int UNIQUE)",
        "CREATE TABLE i (id int GENERATED ALWAYS AS IDENTITY, v int)",
    )

    def next(self, status: pq.TransactionStatus) -> str:
        """Return another statement."""
        sql = super().next(status)
        outside = "ADD COLUMN" in sql or (sql.startswith("ALTER SEQUENCE") and "RESTART" not in sql)
        if outside and status != pq.TransactionStatus.IDLE:
            return self.next(status)
        return sql

    def kinds(self) -> list[Callable[[], str]]:
        """Return what makes a statement."""
        return [
            *[self.draw] * 8,
            *[self.insert] * 6,
            *[self.sequence] * 3,
            *[self.alter] * 3,
            *[self.block] * 4,
        ]

    def _sequence(self) -> str:
        return self.choose.choice(("s", "s", "s", "q", "r", "n_id_seq", "i_id_seq"))

    def _options(self) -> str:
        small = self.choose.randrange(-3, 4)
        increment = self.choose.choice((small, -2, -1, 2))
        options = (
            f"INCREMENT {increment}",
            f"START {small}",
            self.choose.choice((f"MINVALUE {small}", "NO MINVALUE")),
            self.choose.choice((f"MAXVALUE {small + 9}", "NO MAXVALUE")),
            self.choose.choice(("CYCLE", "NO CYCLE")),
            "AS smallint",
            "CACHE 1",
        )
        return " ".join(self.choose.sample(options, self.choose.randrange(1, 4)))

    def draw(self) -> str:
        name = self._sequence()
        return "SELECT " + self.choose.choice(
            (
                *[f"nextval('{name}')"] * 4,
                f"currval('{name}')",
                f"setval('{name}', {self.choose.randrange(-2, 12)})",
                f"setval('{name}', {self.choose.randrange(-2, 12)}, false)",
                f"last_value, is_called FROM {name}",
                "pg_get_serial_sequence('n', 'id')",
                "* FROM n",
                "* FROM i",
                "sequencename, start_value, min_value, max_value, increment_by, cycle,"
                " last_value FROM pg_sequences",
            )
        )

    def insert(self) -> str:
        v = self.choose.choice((*map(str, range(8)), "NULL", "DEFAULT", "nextval('s')"))
        table = self.choose.choice("ni")
        value = self.choose.choice((f"{self._key()}", "DEFAULT"))
        overriding = self.choose.choice(("SYSTEM", "USER"))
        return self.choose.choice(
            (
                f"INSERT INTO {table} DEFAULT VALUES RETURNING *",
                f"INSERT INTO {table} (v) VALUES ({v}) RETURNING *",
                f"INSERT INTO {table} (v) VALUES ({v})",
                f"INSERT INTO {table} VALUES ({value}, {v}) RETURNING id",
                f"INSERT INTO {table} OVERRIDING {overriding} VALUE VALUES ({value}, {v})"
                " RETURNING *",
                f"INSERT INTO n (v) VALUES ({v}) ON CONFLICT DO NOTHING RETURNING *",
                f"INSERT INTO n (v) VALUES ({v}) ON CONFLICT (v) DO UPDATE SET v = 9 RETURNING *",
                f"UPDATE {table} SET id = DEFAULT WHERE id = {self._key()} RETURNING *",
                f"UPDATE {table} SET id = {self._key()} WHERE id = {self._key()}",
                f"DELETE FROM {table} WHERE id = {self._key()} RETURNING *",
            )
        )

    def sequence(self) -> str:
        name = self._sequence()
        return self.choose.choice(
            (
                f"CREATE SEQUENCE {name} {self._options()}",
                f"CREATE SEQUENCE IF NOT EXISTS {name}",
                f"CREATE SEQUENCE {name} OWNED BY n.v",
                f"ALTER SEQUENCE {name} {self._options()}",
                f"ALTER SEQUENCE {name} {self._options()} RESTART",
                f"ALTER SEQUENCE {name} RESTART",
                f"ALTER SEQUENCE {name} RESTART {self.choose.randrange(1, 9)}",
                f"ALTER SEQUENCE {name} OWNED BY {self.choose.choice(('n.v', 'i.v', 'NONE'))}",
                "ALTER SEQUENCE s RENAME TO r",
                "ALTER SEQUENCE r RENAME TO s",
                f"DROP SEQUENCE {name}",
                f"DROP SEQUENCE IF EXISTS {name} CASCADE",
            )
        )

    def alter(self) -> str:
        table = self.choose.choice("ni")
        name = self.choose.choice(("q", "n_id_seq", "i_id_seq"))
        kind = self.choose.choice(("ALWAYS", "BY DEFAULT"))
        return self.choose.choice(
            (
                f"TRUNCATE {table} RESTART IDENTITY",
                f"TRUNCATE {table}",
                "TRUNCATE n, i RESTART IDENTITY",
                f"ALTER TABLE {table} ALTER id DROP DEFAULT",
                f"ALTER TABLE {table} ALTER id SET DEFAULT nextval('{name}')",
                f"ALTER TABLE {table} ALTER v SET DEFAULT nextval('s')",
                f"ALTER TABLE {table} ALTER id ADD GENERATED {kind} AS IDENTITY",
                f"ALTER TABLE {table} ALTER id SET GENERATED {kind}",
                f"ALTER TABLE {table} ALTER id SET NOT NULL",
                f"ALTER TABLE {table} ALTER id RESTART WITH {self._key()}",
                f"ALTER TABLE {table} ALTER id SET INCREMENT BY 2 SET START WITH 3 RESTART",
                f"ALTER TABLE {table} ALTER id DROP IDENTITY",
                f"ALTER TABLE {table} ALTER id DROP IDENTITY IF EXISTS",
                f"ALTER TABLE {table} RENAME COLUMN v TO w",
                f"ALTER TABLE {table} RENAME COLUMN w TO v",
            )
        )


class Copies(Script):
    """COPY of a few rows, in and out, among all other statements."""

    def kinds(self) -> list[Callable[[], str]]:
        """Return what makes a statement."""
        return [*super().kinds(), *[self.copy_in] * 14, *[self.copy_out] * 6]

    def copy_in(self) -> str:
        column, csv = self._column(), self.choose.random() < 0.5
        null = "" if csv else "\\N"
        rows = [
            [
                str(self._key() + self.choose.choice((0, 0, 20))),
                self.choose.choice((*"012345", null)),
            ]
            for _ in range(self.choose.randrange(4))
        ]
        if self.choose.random() < 0.15:
            rows = [
                self.choose.choice((["1"], ["1", "2", "3"], ["x", "1"], [null, "1"], ["9", " 7"]))
            ]
        header = csv and self.choose.random() < 0.3
        lines = [["id", "it"]] * header + rows
        options = f" WITH (FORMAT csv{', HEADER' * header})" if csv else ""
        data = "".join(("," if csv else "\t").join(line) + "\n" for line in lines)
        return f"COPY {self._table()} (id, {column}) FROM STDIN{options}{DATA}{data}"

    def copy_out(self) -> str:
        table = self._table()
        what = self.choose.choice(
            (
                table,
                f"{table} (id, {self._column()})",
                f"(SELECT * FROM {table} WHERE v > 2)",
            )
        )
        return f"COPY {what} TO STDOUT{self.choose.choice(('', ' (FORMAT csv, HEADER)'))}"


class Temporary(Script):
    """Temporary tables and views that hide permanent ones."""

    def kinds(self) -> list[Callable[[], str]]:
        """Return what makes a statement."""
        return [*super().kinds(), *[self.make] * 8, *[self.other] * 8]

    def make(self) -> str:
        table = self._table()
        on_commit = self.choose.choice(
            ("", "", "ON COMMIT DROP", "ON COMMIT DELETE ROWS", "ON COMMIT PRESERVE ROWS")
        )
        return self.choose.choice(
            (
                f"CREATE TEMP TABLE {table} (id int PRIMARY KEY, v int) {on_commit}",
                f"CREATE TEMP TABLE {table} (id serial, v int UNIQUE, w int) {on_commit}",
                f"CREATE TEMP TABLE IF NOT EXISTS {table} (id int, v int) {on_commit}",
                f"CREATE TEMP TABLE {table} {on_commit} AS SELECT id, v FROM {table}",
                f"CREATE TEMP TABLE pg_temp.{table} (id int, v int NOT NULL) {on_commit}",
                f"CREATE TEMP VIEW by_v AS SELECT id, v AS n FROM {table}",
                f"CREATE OR REPLACE TEMP VIEW by_v AS SELECT id, v AS n FROM {table}",
            )
        )

    def other(self) -> str:
        table = self._table()
        place = self.choose.choice(("", "pg_temp.", f"{SCHEMA}."))
        return self.choose.choice(
            (
                f"SELECT * FROM {place}{table}",
                f"SELECT * FROM {place}{table}",
                f"SELECT * FROM {place}by_v",
                f"INSERT INTO {place}{table} (id, v) VALUES ({self._key()}, 3)",
                f"UPDATE {place}{table} SET v = v + 1 WHERE id = {self._key()}",
                f"DELETE FROM {place}{table} WHERE id = {self._key()}",
                f"DROP TABLE pg_temp.{table}",
                "DROP VIEW pg_temp.by_v",
                f"ALTER TABLE pg_temp.{table} ADD COLUMN w int DEFAULT 4",
                f"ALTER TABLE pg_temp.{table} RENAME TO other",
                f"CREATE UNIQUE INDEX k1 ON pg_temp.{table} (v)",
                "DROP TABLE IF EXISTS pg_temp.other",
                "DISCARD TEMP",
            )
        )


class Cursors(Script):
    """Cursors over tables that change below them, tables made of queries, and names not given."""

    def kinds(self) -> list[Callable[[], str]]:
        """Return what makes a statement."""
        return [*super().kinds(), *[self.cursor] * 20, *[self.make] * 4]

    def cursor(self) -> str:
        name = self.choose.choice("cd")
        hold = self.choose.choice(("", "", "", " WITH HOLD"))
        query = self.choose.choice(
            (
                "SELECT id, v FROM t ORDER BY id",
                "SELECT * FROM u ORDER BY id DESC",
                "SELECT a.id, b.v FROM t AS a JOIN u AS b ON a.id = b.id ORDER BY 1",
                "SELECT id FROM kept ORDER BY 1",
                "VALUES (1), (2)",
            )
        )
        how = self.choose.choice(("", "", "NEXT FROM ", "2 FROM ", "ALL FROM ", "FORWARD 3 FROM "))
        return self.choose.choice(
            (
                *[f"DECLARE {name} CURSOR{hold} FOR {query}"] * 2,
                *[f"FETCH {how}{name}"] * 5,
                f"MOVE {how}{name}",
                f"CLOSE {name}",
                "CLOSE ALL",
            )
        )

    def make(self) -> str:
        table, column = self._table(), self._column()
        return self.choose.choice(
            (
                f"CREATE TABLE u AS SELECT * FROM {table}",
                f"CREATE TABLE IF NOT EXISTS other AS SELECT id, v FROM {table} WHERE v > 2",
                f"CREATE TABLE other AS SELECT v, count(*) FROM {table} GROUP BY v WITH NO DATA",
                "SELECT * FROM other",
                f"ALTER TABLE {table} ADD UNIQUE ({column})",
                f"ALTER TABLE {table} ADD CHECK ({column} <> 5)",
                f"CREATE UNIQUE INDEX ON {table} ({column})",
                "DROP TABLE u",
                "SELECT conrelid::regclass::text, conname FROM pg_constraint"
                " WHERE conrelid::regclass::text IN ('t', 'u', 'other')",
                "SELECT tablename, indexname FROM pg_indexes WHERE tablename IN ('t', 'u', 'other')"
                " AND schemaname = current_schema()",
            )
        )
