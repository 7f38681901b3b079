"""Random statements over tables that refer to each other and to themselves."""

from __future__ import annotations

from collections.abc import Callable

from tests.sqllogic.random_script import Script

ACTIONS = ("", "NO ACTION", "RESTRICT", "CASCADE", "CASCADE", "SET NULL", "SET DEFAULT")


class References(Script):
    """Foreign keys of one and two columns, with all actions, checked at once or deferred."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.begins = (
            "CREATE TABLE a (id int PRIMARY KEY, x int, y int, UNIQUE (x, y))",
            f"CREATE TABLE b (id int PRIMARY KEY, a int DEFAULT 1 {self.rule('a')})",
            f"CREATE TABLE c (a bigint {self.rule('a')}, b int DEFAULT 2 {self.rule('b')})",
            f"CREATE TABLE s (id int PRIMARY KEY, s int DEFAULT 3 {self.rule('s')})",
            "CREATE TABLE d (id int PRIMARY KEY, x int, y int DEFAULT 1,"
            f" FOREIGN KEY (x, y) {self.rule('a (x, y)')})",
            f"ALTER TABLE a ADD COLUMN b int {self.rule('b')}",
            "CREATE VIEW all_of_them AS SELECT a.id, b.id AS b, c.a, c.b AS c"
            " FROM a LEFT JOIN b ON b.a = a.id LEFT JOIN c ON c.b = b.id",
        )

    def rule(self, table: str) -> str:
        """Return a random REFERENCES clause."""
        update, delete = self.choose.choice(ACTIONS), self.choose.choice(ACTIONS)
        text = f"REFERENCES {table}"
        if "," in table and self.choose.random() < 0.4:
            text += " MATCH FULL"
        text += f" ON UPDATE {update}" if update else ""
        text += f" ON DELETE {delete}" if delete else ""
        deferral = self.choose.choice(("", "", " DEFERRABLE", " DEFERRABLE INITIALLY DEFERRED"))
        return text + deferral

    def kinds(self) -> list[Callable[[], str]]:
        """Return what makes a statement."""
        return [
            *[self.insert] * 9,
            *[self.update] * 5,
            *[self.delete] * 4,
            *[self.other] * 3,
            *[self.select] * 4,
            *[self.block] * 4,
            self.constraints,
            self.alter,
        ]

    def _few(self) -> int:
        return self.choose.randrange(1, 6)

    def _maybe(self) -> str:
        return "NULL" if self.choose.random() < 0.2 else str(self._few())

    def _row(self, table: str) -> str:
        if table == "c":
            return f"({self._maybe()}, {self._maybe()})"
        columns = {"a": 3, "b": 1, "s": 1, "d": 2}[table]
        return f"({self._few()}, {', '.join(self._maybe() for _ in range(columns))})"

    def insert(self) -> str:
        """Insert rows, or as many as another table has."""
        table = self.choose.choice("aabbcsd")
        if table in "bcs" and self.choose.random() < 0.2:
            what = "id, id" if table != "c" else "id, id % 4"
            return f"INSERT INTO {table} SELECT {what} FROM {self.choose.choice('abs')}"
        rows = ", ".join(self._row(table) for _ in range(self.choose.choice((1, 1, 2, 3))))
        returning = self.choose.choice(("", " RETURNING *"))
        if table != "c" and self.choose.random() < 0.3:
            returning = " ON CONFLICT DO NOTHING" + returning
        return f"INSERT INTO {table} VALUES {rows}{returning}"

    def update(self) -> str:
        """Update a key of one row, or references of some."""
        table = self.choose.choice("aabbsd")
        if self.choose.random() < 0.4:
            return f"UPDATE {table} SET id = {self._few()} WHERE id = {self._few()}"
        column = {"a": "xyb", "b": "a", "s": "s", "d": "xy"}[table]
        found = self.choose.choice(column)
        where = f"id = {self._few()}" if table == "a" else f"id < {self._few()}"
        return f"UPDATE {table} SET {found} = {self._maybe()} WHERE {where}"

    def delete(self) -> str:
        """Delete rows of a table."""
        table = self.choose.choice("aabbsd")
        sign = self.choose.choice(("=", "=", "<"))
        return f"DELETE FROM {table} WHERE id {sign} {self._few()}"

    def other(self) -> str:
        """MERGE, WITH that changes two tables, ON CONFLICT DO UPDATE or TRUNCATE."""
        few = self._few
        return self.choose.choice(
            (
                f"MERGE INTO b USING (VALUES ({few()}), ({few() + 5})) AS v (k) ON b.id = v.k"
                f" WHEN MATCHED AND v.k < {few()} THEN DELETE"
                f" WHEN MATCHED THEN UPDATE SET a = {few()}"
                f" WHEN NOT MATCHED THEN INSERT VALUES (v.k, {few()})",
                f"WITH new AS (INSERT INTO a VALUES ({few()}) RETURNING id)"
                f" INSERT INTO b SELECT id + {few()}, id FROM new",
                f"INSERT INTO b VALUES ({few()}, {few()}) ON CONFLICT (id)"
                f" DO UPDATE SET a = excluded.a, id = b.id + {self.choose.choice((0, 5))}",
                "TRUNCATE " + self.choose.choice(("a", "b", "c", "s", "a, b, c, d", "s, c")),
                f"TRUNCATE {self.choose.choice('abcs')} CASCADE",
            )
        )

    def select(self) -> str:
        """Read a table, or a view over three."""
        return f"SELECT * FROM {self.choose.choice(('a', 'b', 'c', 's', 'd', 'all_of_them'))}"

    def constraints(self) -> str:
        """SET CONSTRAINTS."""
        names = self.choose.choice(("ALL", "b_a_fkey", "c_b_fkey, c_a_fkey", "s_s_fkey"))
        return f"SET CONSTRAINTS {names} {self.choose.choice(('DEFERRED', 'IMMEDIATE'))}"

    def alter(self) -> str:
        """Drop a foreign key, or add one."""
        return self.choose.choice(
            (
                "ALTER TABLE c DROP CONSTRAINT IF EXISTS c_a_fkey",
                f"ALTER TABLE c ADD CONSTRAINT c_a_fkey FOREIGN KEY (a) {self.rule('a')}",
                f"ALTER TABLE c ADD CONSTRAINT k FOREIGN KEY (b) {self.rule('a')} NOT VALID",
                "ALTER TABLE c VALIDATE CONSTRAINT k",
                "ALTER TABLE c DROP CONSTRAINT k",
            )
        )
