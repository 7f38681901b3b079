"""Tables of random statements, with keys of several types, indexes, views and rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.statements.values import KEYS, OF_ROWS, VALUES, WIDE_KEYS, wide_value

TYPES = tuple(VALUES)
GENERATED = (
    ("int", "n % 7"),
    ("text", "upper(s)"),
    ("bool", "n > 1 OR s IS NULL"),
    ("numeric", "round(n / 3.0, 2)"),
)
GROUPED = (
    "int",
    "text",
    "bool",
    "date",
    "bigint",
    "uuid",
    "smallint",
    "numeric",
    "char(4)",
    "mood",
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column, with values that its rows have."""

    name: str
    type: str
    nullable: bool = True
    values: tuple[str, ...] = ()
    generated: str = ""  # the expression of which it is generated


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or a view if it has no key."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    is_view: bool = False
    indexed: tuple[str, ...] = ()  # columns that begin an index

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns that take values."""
        return tuple([each for each in self.columns if not each.generated])

    def column(self, name: str) -> Column:
        """Return the column of a name."""
        return next(each for each in self.columns if each.name == name)


@dataclass
class Schema:
    """Tables and views, and the statements that make them."""

    random: Random
    is_large: bool
    tables: list[Table] = field(default_factory=list)
    rows: list[list[list[str | None]]] = field(default_factory=list)  # of each table
    both: list[str] = field(default_factory=list)  # statements for both databases
    ours: list[str] = field(default_factory=list)
    theirs: list[str] = field(default_factory=list)

    def make(self) -> None:
        """Make three tables and two views."""
        self.both.append("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        for number in range(3):
            self._table(number)
        self._view()
        self._kept_view()

    def _table(self, number: int) -> None:
        choose = self.random
        count = 1500 if self.is_large else choose.choice((0, 1, 3, 8, 20))
        allowed = WIDE_KEYS if self.is_large else KEYS
        width = choose.choice((1, 1, 2)) if number else 1
        key_types = [choose.choice(allowed) for _ in range(width)]
        names = [f"k{i + 1}" for i in range(width)]
        others = [
            ("n", "int"),
            ("s", "text"),
            *((letter, choose.choice(TYPES)) for letter in "abcd"[: choose.randint(1, 4)]),
        ]
        if number and choose.random() < 0.8:
            first = self.tables[0]
            others.append(("r", first.column(first.key[0]).type))
        rows: list[list[str | None]] = []
        wide = self.is_large
        for at in range(count):
            key: list[str | None] = (
                [wide_value(type, at) for type in key_types]
                if wide
                else [choose.choice(VALUES[type]) for type in key_types]
            )
            rest: list[str | None] = []
            for name, type in others:
                if choose.random() < 0.15:
                    rest.append(None)
                elif name == "r" and wide and choose.random() < 0.5:
                    rest.append(wide_value(type, choose.randrange(count)))
                else:
                    values = [*VALUES[type], *OF_ROWS.get(type, ())]
                    values = [v for v in values if name != "n" or v != "4"]
                    rest.append(choose.choice(values))
            rows.append([*key, *rest])
        seen: dict[tuple[str | None, ...], list[str | None]] = {}
        for row in rows:
            seen.setdefault(tuple(_canonical(v) for v in row[:width]), row)
        rows = list(seen.values())
        columns = [
            Column(name, type, False, tuple(str(row[i]) for row in rows[-40:]))
            for i, (name, type) in enumerate(zip(names, key_types, strict=True))
        ] + [Column(name, type) for name, type in others]
        if others[-1][0] == "r":
            first = self.tables[0]
            columns[-1] = Column("r", others[-1][1], True, first.columns[0].values)
        if choose.random() < 0.3:
            type, expression = choose.choice(GENERATED)
            columns.append(Column("gen", type, generated=expression))
        unique: tuple[str, ...] = ()
        definitions = [f"{each.name} {each.type}{self._rules(each)}" for each in columns]
        if others[-1][0] == "r" and not wide and choose.random() < 0.25:
            rows = _referring(rows, self.rows[0])
            does = choose.choice(
                ("", " ON DELETE CASCADE", " ON DELETE SET NULL", " ON UPDATE CASCADE")
            )
            definitions.append(f"FOREIGN KEY (r) REFERENCES t0{does}")
        if choose.random() < 0.2 and not wide:
            rows = list({row[width]: row for row in rows if row[width] is not None}.values())
            definitions.append("UNIQUE (n)")
            unique = ("n",)
        self.rows.append(rows)
        self.both.append(
            f"CREATE TABLE t{number} ({', '.join(definitions)}, PRIMARY KEY ({', '.join(names)}))"
        )
        indexed = list(unique)
        for name, type in others:
            if type in GROUPED and choose.random() < 0.35:
                indexed.append(name)
                more = f", {names[0]}" if choose.random() < 0.2 else ""
                self.both.append(f"CREATE INDEX ON t{number} ({name}{more})")
        for start in range(0, len(rows), 500):
            literals = ", ".join(
                "(" + ", ".join(_literal(v) for v in row) + ")" for row in rows[start : start + 500]
            )
            self.both.append(f"INSERT INTO t{number} VALUES {literals}")
        table = Table(f"t{number}", tuple(columns), tuple(names), unique, indexed=tuple(indexed))
        self.tables.append(table)

    def _rules(self, column: Column) -> str:
        """Return what is said of a column in its definition."""
        if column.generated:
            return f" GENERATED ALWAYS AS ({column.generated}) STORED"
        if not column.nullable:
            return " NOT NULL"
        if column.name == "n":
            return self.random.choice(("", " DEFAULT 7", " CHECK (n <> 4 OR n IS NULL)"))
        return " DEFAULT 'dflt'" if column.name == "s" and self.random.random() < 0.3 else ""

    def _view(self) -> None:
        """Make a view of groups, with an index."""
        base = self.random.choice(self.tables)
        by = self.random.choice([each for each in base.columns if each.type in GROUPED])
        sql = (
            f"SELECT {by.name} AS g, count(*) AS c, sum(n) AS m, max(s) AS x FROM {base.name}"
            f" GROUP BY {by.name}"
        )
        self.both.append(f"CREATE VIEW v0 AS {sql}")
        self.ours.append("CREATE INDEX ON v0 (g)")
        values = by.values or VALUES[by.type]
        columns = (
            Column("g", by.type, True, values),
            Column("c", "bigint", False),
            Column("m", "bigint"),
            Column("x", "text"),
        )
        self.tables.append(Table("v0", columns, is_view=True))

    def _kept_view(self) -> None:
        """Make a materialized view of a join, which is a plain view in PostgreSQL."""
        pairs = [each for each in self.tables if any(c.name == "r" for c in each.columns)]
        if not pairs:
            return
        a, b = self.random.choice(pairs), self.tables[0]
        key = b.columns[0]
        sql = (
            f"SELECT y.{key.name} AS g, x.n AS n, x.s AS s, y.s AS z"
            f" FROM {a.name} AS x JOIN {b.name} AS y ON x.r = y.{key.name}"
        )
        self.ours += [f"CREATE MATERIALIZED VIEW m0 AS {sql}", "CREATE INDEX ON m0 (g)"]
        self.theirs.append(f"CREATE VIEW m0 AS {sql}")
        columns = (
            Column("g", key.type, False, key.values),
            Column("n", "int"),
            Column("s", "text"),
            Column("z", "text"),
        )
        self.tables.append(Table("m0", columns, is_view=True))

    def statements(self, *, ours: bool) -> Iterator[str]:
        """Yield what makes the schema in a database."""
        yield from self.both
        yield from self.ours if ours else self.theirs


def _literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def _canonical(value: str | None) -> str | None:
    """Return one text for equal values."""
    return {"-0": "0", "24:00:00": "1 day"}.get(value or "", value)


def _referring(
    rows: Sequence[list[str | None]], others: Sequence[list[str | None]]
) -> list[list[str | None]]:
    """Return rows whose last values are keys of others, or NULL."""
    keys = {row[0] for row in others}
    return [[*row[:-1], row[-1] if row[-1] in keys else None] for row in rows]
