"""Random changes of the tables of a schema, and statements of blocks."""

from tests.statements.expressions import Scope
from tests.statements.queries import Queries
from tests.statements.schema import Column, Table
from tests.statements.values import Statement, plain


class Changes(Queries):
    """Makes changes; one for each statement."""

    def change(self) -> Statement:
        """Return a change."""
        make = self.random.choice(
            (
                *(
                    self.insert,
                    self.insert,
                    self.upsert,
                    self.update,
                    self.update,
                    self.update_from,
                ),
                *(
                    self.delete,
                    self.merge,
                    self.insert_select,
                    self.within,
                    self.simple,
                    self.simple,
                    self.set_rows,
                    self.delete_in,
                ),
            )
        )
        text = make()
        return Statement(text, tuple(self.parameters), "none", changes=True)

    def _table(self) -> Table:
        return self.random.choice([each for each in self.schema.tables if not each.is_view])

    def _new(self, column: Column, scope: Scope) -> str:
        """Return a new value of a column."""
        if self.chance(0.05):
            return "DEFAULT"
        if column.nullable and self.chance(0.3):
            return self.scalar(column.type, scope, 1)
        return self.parameter(plain(column.type), column.values, cast=0.2)

    def _returning(self, alias: str, table: Table) -> str:
        if self.chance(0.5):
            return ""
        if self.chance(0.3):
            return " RETURNING *"
        scope = Scope().with_columns(alias, table.columns)
        self.may_have_subqueries = False  # not supported in RETURNING
        return f" RETURNING {', '.join(self.items(scope, self.types(scope)))}"

    def _values(self, table: Table, count: int) -> tuple[str, str]:
        columns = [each for each in table.written if not each.nullable or self.chance(0.7)]
        if self.chance(0.2):
            self.random.shuffle(columns)
        rows = ", ".join(
            "(" + ", ".join(self._new(each, Scope()) for each in columns) + ")"
            for _ in range(count)
        )
        return ", ".join(each.name for each in columns), rows

    def insert(self) -> str:
        """Return an INSERT of values."""
        table = self._table()
        names, rows = self._values(table, self.random.choice((1, 1, 1, 2, 3)))
        return f"INSERT INTO {table.name} AS y ({names}) VALUES {rows}{self._returning('y', table)}"

    def insert_select(self) -> str:
        """Return an INSERT of a query, whose order would decide what ON CONFLICT leaves out."""
        table = self._table()
        columns = [each for each in table.written if not each.nullable or self.chance(0.6)]
        source, scope, found = self.source(small=True)
        items = ", ".join(self.scalar(each.type, scope, 1) for each in columns)
        order = self.random.choice(("", " ORDER BY 1"))
        return (
            f"INSERT INTO {table.name} AS y ({', '.join(each.name for each in columns)})"
            f" SELECT {items} FROM"
            f" {source}{self.where(scope, found)}{order}{self._returning('y', table)}"
        )

    def upsert(self) -> str:
        """Return an INSERT ... ON CONFLICT."""
        table = self._table()
        names, rows = self._values(table, self.random.choice((1, 1, 2)))
        start = f"INSERT INTO {table.name} AS y ({names}) VALUES {rows} ON CONFLICT"
        if self.chance(0.35):
            target = f" ({', '.join(table.key)})" if self.chance(0.7) else ""
            return f"{start}{target} DO NOTHING{self._returning('y', table)}"
        scope = Scope().with_columns("y", table.columns).with_columns("excluded", table.columns)
        self.may_have_subqueries = False  # not supported in DO UPDATE
        sets = self._sets(table, scope)
        where = f" WHERE {self.condition(scope, 1)}" if self.chance(0.25) else ""
        return (
            f"{start} ({', '.join(table.key)}) DO UPDATE SET"
            f" {sets}{where}{self._returning('y', table)}"
        )

    def _sets(self, table: Table, scope: Scope) -> str:
        # Keys are checked at the end of a statement here, in PostgreSQL row by row.
        others = [each for each in table.written if each.nullable and each.name not in table.unique]
        columns = self.random.sample(others, min(len(others), self.random.randint(1, 2)))
        return ", ".join(f"{each.name} = {self._value(each, scope)}" for each in columns)

    def _value(self, column: Column, scope: Scope) -> str:
        if self.chance(0.04):
            return "DEFAULT"
        if self.chance(0.5):
            return self.parameter(plain(column.type), column.values, cast=0.2)
        return self.scalar(column.type, scope, 1)

    def update(self) -> str:
        """Return an UPDATE of one table."""
        table = self._table()
        scope = Scope().with_columns("y", table.columns)
        sets = self._sets(table, scope)
        if self.chance(0.1) and len(table.key) == 1:
            key = table.column(table.key[0])
            sets += f", {key.name} = {self.parameter(plain(key.type), key.values, cast=0.2)}"
            one = self.parameter(plain(key.type), key.values, cast=0.2)
            return (
                f"UPDATE {table.name} AS y SET {sets} WHERE y.{key.name} ="
                f" {one}{self._returning('y', table)}"
            )
        where = self.where(scope, self.by_key(table, "y"))
        return f"UPDATE {table.name} AS y SET {sets}{where}{self._returning('y', table)}"

    def simple(self) -> str:
        """Return a change of the row under a key, as most are."""
        table = self._table()
        column = self.random.choice([each for each in table.written if each.nullable])
        found = " AND ".join(f"{name} = {self._key(table.column(name))}" for name in table.key)
        value = self.parameter(plain(column.type), cast=0.2)
        if column.type in ("int", "bigint") and self.chance(0.5):
            value = f"{column.name} % 1000 + 1"
        return self.random.choice(
            (
                f"UPDATE {table.name} SET {column.name} = {value} WHERE {found}",
                (
                    f"UPDATE {table.name} SET {column.name} = {value} WHERE {found} RETURNING"
                    f" {column.name}"
                ),
                f"DELETE FROM {table.name} WHERE {found}",
            )
        )

    def merge_table(self) -> str:
        """Return a MERGE from at most one row of another table for each."""
        table = self._table()
        other = self.random.choice(self.schema.tables[:3])
        scope = Scope().with_columns("y", table.columns)
        conditions = [
            f"y.{name} = {self.random.choice(found)[0]}"
            if (found := Scope().with_columns("z", other.columns).of(table.column(name).type))
            else f"y.{name} = {self._key(table.column(name))}"
            for name in table.key
        ]
        picked = self.by_key(other, "v")
        condition = f" AND {self.condition(scope, 0)}" if self.chance(0.4) else ""
        does = self.random.choice(
            ("DELETE", "DO NOTHING", f"UPDATE SET {self._sets(table, scope)}")
        )
        source = (
            f"(SELECT * FROM {other.name} AS v WHERE {picked} ORDER BY {', '.join(other.key)}"
            " LIMIT 1) AS z"
        )
        return (
            f"MERGE INTO {table.name} AS y USING {source} ON {' AND '.join(conditions)} WHEN"
            f" MATCHED{condition} THEN {does}"
        )

    def set_rows(self) -> str:
        """Return an UPDATE of several columns by a subquery."""
        table, other = self._table(), self.random.choice(self.schema.tables[:3])
        scope = Scope().with_columns("y", table.columns)
        where = self._correlated(other, "z", scope)
        found = self.where(scope, self.by_key(table, "y"))
        picked = f"SELECT z.s, z.s FROM {other.name} AS z WHERE {where} ORDER BY 1 LIMIT 1"
        return self.random.choice(
            (
                f"UPDATE {table.name} AS y SET s = ({picked.replace('z.s, ', '')}){found}",
                (
                    f"UPDATE {table.name} AS y SET (s) = ROW"
                    f" ({self.scalar('text', scope, 1)}){found}{self._returning('y', table)}"
                ),
                f"INSERT INTO {table.name} DEFAULT VALUES",
            )
        )

    def delete_in(self) -> str:
        """Return a DELETE of the rows that a subquery finds."""
        table = self._table()
        scope = Scope().with_columns("y", table.columns)
        return (
            f"DELETE FROM {table.name} AS y WHERE {self.by_key(table, 'y')} AND"
            f" {self.exists(scope)}{self._returning('y', table)}"
        )

    def within(self) -> str:
        """Return a query over what a part of its WITH has changed."""
        change = self.random.choice((self.insert, self.update, self.delete, self.upsert))()
        change = change.partition(" RETURNING ")[0]
        return f"WITH w AS ({change} RETURNING *) SELECT count(*), min(n), max(s) FROM w"

    def many(self) -> Statement:
        """Return a change that is run with many arguments."""
        make = self.random.choice((self.simple, self.simple, self.insert, self.upsert))
        text = make()
        return Statement(text, tuple(self.parameters), "none", changes=True)

    def definition(self) -> Statement:
        """Return a statement that alters a table."""
        table = self._table()
        text = self.random.choice(
            (
                f"ALTER TABLE {table.name} ADD COLUMN z{self.random.randint(1, 2)} int DEFAULT 1",
                f"ALTER TABLE {table.name} DROP COLUMN IF EXISTS z{self.random.randint(1, 2)}",
                f"CREATE INDEX i{self.random.randint(1, 2)} ON {table.name} (n)",
                f"CREATE INDEX i{self.random.randint(1, 2)} ON {table.name} (s, n)",
                f"DROP INDEX IF EXISTS i{self.random.randint(1, 2)}",
            )
        )
        return Statement(text, (), "none", changes=True)

    def update_from(self) -> str:
        """Return an UPDATE ... FROM of at most one row for each."""
        table, other = self._table(), self.random.choice(self.schema.tables[:3])
        scope = Scope().with_columns("y", table.columns)
        joined = scope.with_columns("z", other.columns)
        conditions = [self.by_key(table, "y")]
        for name in other.key:
            column = other.column(name)
            found = scope.of(column.type)
            conditions.append(
                f"z.{name} = {self.random.choice(found)[0] if found else self._key(column)}"
            )
        return (
            f"UPDATE {table.name} AS y SET {self._sets(table, joined)} FROM {other.name} AS z"
            f" WHERE {' AND '.join(conditions)}{self._returning('y', table)}"
        )

    def delete(self) -> str:
        """Return a DELETE."""
        table = self._table()
        scope = Scope().with_columns("y", table.columns)
        if self.chance(0.3):
            other = self.random.choice(self.schema.tables[:3])
            conditions = [self.by_key(table, "y"), self._correlated(other, "z", scope)]
            return (
                f"DELETE FROM {table.name} AS y USING {other.name} AS z WHERE"
                f" {' AND '.join(conditions)}"
            )
        return (
            f"DELETE FROM {table.name} AS"
            f" y{self.where(scope, self.by_key(table, 'y'))}{self._returning('y', table)}"
        )

    def merge(self) -> str:
        """Return a MERGE from values."""
        table = self._table()
        key = table.column(table.key[0])
        number = table.column("n")
        rows = (
            f"({self.parameter(plain(key.type), key.values, cast=1)},"
            f" {self.parameter('int', cast=1)})"
        )
        scope = Scope().with_columns("y", table.columns)
        on = f"y.{key.name} = v.k"
        if len(table.key) > 1:
            second = table.column(table.key[1])
            value = self.parameter(plain(second.type), second.values, cast=1)
            on += f" AND y.{second.name} = {value}"
        condition = f" AND {self.condition(scope, 0)}" if self.chance(0.4) else ""
        matched = self.random.choice(
            (
                f"UPDATE SET {number.name} = v.n",
                "DELETE",
                f"UPDATE SET {number.name} = y.n % 100 + 1",
                "DO NOTHING",
            )
        )
        missing = ""
        if len(table.key) == 1 and self.chance(0.6):
            missing = f" WHEN NOT MATCHED THEN INSERT ({key.name}, n) VALUES (v.k, v.n)"
        return (
            f"MERGE INTO {table.name} AS y USING (VALUES {rows}) AS v (k, n) ON {on} WHEN"
            f" MATCHED{condition} THEN {matched}{missing}"
        )
