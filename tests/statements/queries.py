"""Random queries over the tables of a schema."""

from collections.abc import Sequence
from random import Random

from tests.statements.expressions import Expressions, Scope
from tests.statements.schema import Column, Schema, Table
from tests.statements.values import ALIKE, INTEGERS, RUNS, VALUES, Statement, plain

SELECTED = tuple(dict.fromkeys(plain(each) for each in VALUES))
SORTED = tuple(each for each in SELECTED if each != "jsonb")
UNORDERED = ("uuid", "bool", "bytea", "jsonb")  # types without max and min
# What keys are computed from others.
COMPUTED = {
    "int": ("? - 1", "? + 1", "? % 7", "abs(?)", "(? + ?) / 2", "coalesce(?, ?) + 0", "10 / ?"),
    "bigint": ("? - 1", "? * 2", "? % 7", "greatest(?, ?) - 1"),
    "text": ("lower(?)", "upper(?)", "? || ''", "left(?, 1)", "coalesce(?, ?)"),
    "date": ("?::date + 1", "?::date - 0"),
    "timestamp": ("?::timestamp + interval '1 day'", "date_trunc('day', ?::timestamp)"),
    "timestamptz": ("?::timestamptz - interval '1 hour'", "?::timestamptz + interval '0'"),
}
TIMES = ("date", "timestamp", "timestamptz")
SUMMED = ("int", "bigint", "smallint", "numeric")


class Queries(Expressions):
    """Makes queries; one for each statement."""

    def __init__(self, random: Random, schema: Schema) -> None:
        super().__init__(random)
        self.schema = schema
        self.aliases = 0

    def alias(self) -> str:
        """Return a new name."""
        self.aliases += 1
        return f"x{self.aliases}"

    # --- conditions that find few rows ---------------------------------------------------

    def by_key(self, table: Table, alias: str) -> str:
        """Return a condition on the key of a table, or on a column of an index, or on either."""
        if table.indexed and self.chance(0.12):
            return self._by_either(table, alias)
        if table.key and self.chance(0.08):
            return self._by_optional(table, alias)
        names = list(table.key) or [table.columns[0].name]
        if self.chance(0.15):
            names = [self.random.choice(table.columns[:4]).name]
        conditions = []
        for name in names:
            column = table.column(name)
            conditions.append(self._found(column, f"{alias}.{name}", is_view=table.is_view))
            if self.chance(0.1):
                break
        if len(names) > 1 and self.chance(0.2):
            left = ", ".join(f"{alias}.{name}" for name in names)
            rows = ", ".join(
                "(" + ", ".join(self._key(table.column(name)) for name in names) + ")"
                for _ in range(self.random.randint(1, 3))
            )
            return f"({left}) IN ({rows})"
        return " AND ".join(conditions)

    def _by_either(self, table: Table, alias: str) -> str:
        """Return conditions on several columns with an index, of which one has to hold."""
        names = self.random.choices([*table.key, *table.indexed], k=self.random.choice((2, 2, 3)))
        columns = map(table.column, names)
        sides = [self._found(each, f"{alias}.{each.name}", is_view=False) for each in columns]
        return f"({' OR '.join(sides)})"

    def _by_optional(self, table: Table, alias: str) -> str:
        """Return a condition on a column, beside which a condition on an argument may hold."""
        column = table.column(self.random.choice([*table.key, *table.indexed]))
        argument = self.parameter("int", ("1", "2"), cast=1)
        test = self.random.choice(("IS NULL", "= 2", "IS NOT NULL"))
        found = self._found(column, f"{alias}.{column.name}", is_view=False)
        return f"({argument} {test} OR {found})"

    def _key(self, column: Column, *, cast: float = 0.2) -> str:
        if self.chance(0.07) and (alike := ALIKE.get(plain(column.type))):
            return self.parameter(self.random.choice(alike), cast=1)
        return self.parameter(plain(column.type), column.values, cast=cast)

    def _found(self, column: Column, name: str, *, is_view: bool) -> str:
        key = self._key
        is_time = plain(column.type) in TIMES
        wide = () if is_view else ("range", "between", "least", *(("time",) * 3 * is_time))
        match self.random.choice((*("=",) * 6, "in", "any", "or", "computed", *wide)):
            case "in" if self.chance(0.25):
                rows = ", ".join(
                    f"({key(column, cast=1)})" for _ in range(self.random.randint(1, 3))
                )
                return f"{name} IN (VALUES {rows})"
            case "in":
                keys = ", ".join(key(column) for _ in range(self.random.randint(1, 5)))
                return f"{name} IN ({keys})"
            case "any" if self.chance(0.5):
                arrays = [
                    "{" + ",".join(self._element(column) for _ in range(n)) + "}" for n in (2, 1, 3)
                ]
                return f"{name} = ANY ({self.given(f'{column.type}[]', arrays)})"
            case "any":
                keys = ", ".join(key(column, cast=1) for _ in range(self.random.randint(1, 4)))
                return f"{name} = ANY (ARRAY[{keys}])"
            case "range":
                return f"{name} {self.random.choice(('<', '>', '<=', '>='))} {key(column)}"
            case "time":
                operator = self.random.choice(("<", ">", "<=", ">=", "=", "<>"))
                return f"{name} {operator} {self.parameter(self.random.choice(TIMES), cast=1)}"
            case "between":
                return f"{name} BETWEEN {key(column)} AND {key(column)}"
            case "or":
                return f"({name} = {key(column)} OR {name} = {key(column)})"
            case "least":
                return f"{name} >= {key(column)} AND {name} < {key(column)}"
            case "computed" if plain(column.type) in COMPUTED:
                return self._computed(column, name, is_view=is_view)
            case _:
                return f"{name} = {key(column)}"

    def _computed(self, column: Column, name: str, *, is_view: bool) -> str:
        """Return a condition on a column and what is computed of arguments."""

        def computed() -> str:
            made = self.random.choice(COMPUTED[plain(column.type)])
            while "?" in made:
                made = made.replace("?", self._key(column), 1)
            return made

        divisor = self.parameter("int", ("0", "1", "2", "5"), cast=1)
        is_number = plain(column.type) in ("int", "bigint")
        kinds = ["=", "=", "=", "in", "either", *(("guarded", "decided") if is_number else ())]
        match self.random.choice([*kinds, *(() if is_view else (">=", "<"))]):
            case "in":
                return f"{name} IN ({computed()}, {self._key(column)}, {computed()})"
            case "either":
                return f"({name} = {computed()} OR {name} = {self._key(column)})"
            case "guarded":
                return f"({divisor} <> 0 AND {name} = 10 / {divisor})"
            case "decided":
                return f"({divisor} = 0 OR {name} = 10 / {divisor})"
            case operator:
                return f"{name} {operator} {computed()}"

    def _element(self, column: Column) -> str:
        value = self.value(column.type, column.values).replace("\\", "\\\\")
        return "NULL" if self.chance(0.05) else f'"{value}"'

    # --- parts ---------------------------------------------------------------------------

    def source(self, *, small: bool = False) -> tuple[str, Scope, str]:
        """Return what stands in FROM, its columns, and a condition that goes with it."""
        table = self.random.choice(self.schema.tables)
        alias = self.alias()
        scope = Scope().with_columns(alias, table.columns)
        text, where = f"{table.name} AS {alias}", ""
        if self.chance(0.9) or small or self.schema.is_large:
            where = self.by_key(table, alias)
        if self.chance(0.4):
            text, scope = self._joined(text, alias, table, scope)
        return text, scope, where

    def _joined(self, text: str, alias: str, table: Table, scope: Scope) -> tuple[str, Scope]:
        other = self.random.choice(self.schema.tables)
        name = self.alias()
        kind = self.random.choice(
            ("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        )
        if kind in ("RIGHT JOIN", "FULL JOIN") and self.schema.is_large:
            kind = "LEFT JOIN"
        joined = scope.with_columns(name, other.columns)
        conditions = []
        for key in other.key or (other.columns[0].name,):
            column = other.column(key)
            found = scope.of(column.type)
            if not found and kind == "FULL JOIN":
                kind = "LEFT JOIN"
            if found:
                conditions.append(f"{name}.{key} = {self.random.choice(found)[0]}")
            else:
                conditions.append(f"{name}.{key} = {self._key(column)}")
        if self.chance(0.2) and kind != "FULL JOIN":
            conditions.append(self.condition(joined, 1))
        return f"{text} {kind} {other.name} AS {name} ON {' AND '.join(conditions)}", joined

    def _subquery(self, type: str, scope: Scope, depth: int) -> str:
        """Return a scalar subquery under a whole key, or an aggregate."""
        table, alias = self.random.choice(self.schema.tables), self.alias()
        inner = scope.with_columns(alias, table.columns)
        condition = self._correlated(table, alias, scope)
        is_whole = table.key and " AND " not in condition
        if type in UNORDERED and not is_whole:
            return self._coalesce(type, scope, depth)
        if type not in UNORDERED and (self.chance(0.5) or not is_whole):
            function = self.random.choice(("max", "min"))
            own = Scope().with_columns(alias, table.columns)
            return (
                f"(SELECT {function}({self.scalar(type, own, 0)}) FROM {table.name} AS {alias}"
                f" WHERE {condition})"
            )
        value = self.scalar(type, inner, 0)
        return f"(SELECT {value} FROM {table.name} AS {alias} WHERE {condition} ORDER BY 1 LIMIT 1)"

    def _correlated(self, table: Table, alias: str, scope: Scope) -> str:
        conditions = []
        for name in table.key or (table.columns[0].name,):
            column = table.column(name)
            found = scope.of(column.type)
            other = (
                self.random.choice(found)[0] if found and self.chance(0.7) else self._key(column)
            )
            conditions.append(f"{alias}.{name} = {other}")
        if self.chance(0.2):
            conditions.append(self.condition(scope.with_columns(alias, table.columns), 0))
        return " AND ".join(conditions)

    def exists(self, scope: Scope) -> str:
        """Return EXISTS or IN of a subquery."""
        table, alias = self.random.choice(self.schema.tables), self.alias()
        no = self.random.choice(("", "", "NOT "))
        if self.chance(0.4):
            column = self.random.choice(table.columns)
            value = self.scalar(column.type, scope, 0)
            where = self.by_key(table, alias)
            rows = f"SELECT {alias}.{column.name} FROM {table.name} AS {alias} WHERE {where}"
            if self.chance(0.3) and not column.type.endswith("[]"):
                return f"{value} {'<> ALL' if no else '= ANY'} (ARRAY({rows}))"
            return f"{value} {no}IN ({rows})"
        where = self._correlated(table, alias, scope)
        return f"{no}EXISTS (SELECT 1 FROM {table.name} AS {alias} WHERE {where})"

    def where(self, scope: Scope, found: str) -> str:
        """Return a WHERE clause."""
        conditions = [found] if found else []
        if self.chance(0.35):
            conditions.append(self.condition(scope))
        if self.chance(0.15):
            conditions.append(self.exists(scope))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def items(self, scope: Scope, types: Sequence[str]) -> list[str]:
        """Return select items of types."""
        return [self.scalar(type, scope, self.random.choice((0, 0, 1, 1, 2))) for type in types]

    def types(self, scope: Scope | None = None) -> list[str]:
        """Return the types of some select items, mostly those of columns."""
        return [self.type(scope) for _ in range(self.random.randint(1, 4))]

    def type(self, scope: Scope | None) -> str:
        """Return a type whose values can be sorted, mostly that of a column."""
        if self.chance(0.2):
            return self.random.choice(SORTED)
        found = [plain(each.type) for _, each in scope.columns] if scope else ["int", "text"]
        return self.random.choice([each for each in found if each in SORTED] or ["int"])

    def ending(self, width: int, scope: Scope | None = None) -> tuple[str, str]:
        """Return ORDER BY and LIMIT, and how much they determine."""
        if self.chance(0.45):
            return ("", "none") if self.chance(0.9) else (self._limit(), "counted")
        ends = ("", "", " DESC", " ASC", " NULLS FIRST", " DESC NULLS LAST", " DESC NULLS FIRST")
        keys = [f"{i + 1}{self.random.choice(ends)}" for i in range(width)]
        self.random.shuffle(keys)
        if scope is not None and scope.columns and self.chance(0.3):
            keys.insert(0, f"{self.scalar(self.type(scope), scope, 1)}{self.random.choice(ends)}")
        return f" ORDER BY {', '.join(keys)}{self._limit() if self.chance(0.5) else ''}", "total"

    def _limit(self) -> str:
        limit = self.random.choice(
            ("1", "2", "5", "0", "ALL", self.parameter("bigint", ("1", "3"), cast=0))
        )
        offset = f" OFFSET {self.random.choice(('0', '1', '2'))}" if self.chance(0.3) else ""
        return f" LIMIT {limit}{offset}"

    # --- whole queries ---------------------------------------------------------------------

    def query(self) -> Statement:
        """Return a SELECT."""
        make = self.random.choice(
            (
                *(self.plain, self.plain, self.plain, self.star, self.star, self.grouped),
                *(self.grouped, self.together, self.distinct, self.windowed, self.with_part),
                *(self.constant, self.nested, self.locking, self.unnested, self.point, self.point),
                *(self.point, self.point, self.named_columns, self.ties, self.recursive, self.page),
                *(self.of_sets, self.of_series),
            )
        )
        text, order = make()
        return Statement(text, tuple(self.parameters), order)

    def plain(self, types: Sequence[str] | None = None) -> tuple[str, str]:
        """Return a SELECT of expressions."""
        source, scope, found = self.source()
        types = self.types(scope) if types is None else types
        items = self.items(scope, types)
        where = self.where(scope, found)
        ending, order = self.ending(len(items), scope)
        return f"SELECT {', '.join(items)} FROM {source}{where}{ending}", order

    def point(self) -> tuple[str, str]:
        """Return a SELECT of columns of one table by a key, as most statements are."""
        table, alias = self.random.choice(self.schema.tables), self.alias()
        scope = Scope().with_columns(alias, table.columns)
        names = [name for name, each in scope.columns if each.type != "jsonb"]
        items = self.random.sample(names, min(len(names), self.random.randint(1, 3)))
        ending, order = self.ending(len(items), scope) if self.chance(0.4) else ("", "none")
        found = self.by_key(table, alias)
        return (
            f"SELECT {', '.join(items)} FROM {table.name} AS {alias} WHERE {found}{ending}",
            order,
        )

    def of_series(self) -> tuple[str, str]:
        """Return the rows of a table under the integers of a series."""
        tables = [each for each in self.schema.tables if each.key]
        table = self.random.choice(tables)
        name = next((n for n in table.key if table.column(n).type in INTEGERS), "n")
        alias, number = self.alias(), self.alias()
        first, last = (self.random.choice(("-1", "0", "1", "4", "7")) for _ in "ab")
        scope = Scope().with_columns(alias, table.columns)
        items = self.items(scope, self.types(scope))
        join = self.random.choice(("JOIN", "JOIN", "LEFT JOIN"))
        ending, order = self.ending(len(items))
        return (
            f"SELECT {', '.join(items)} FROM generate_series({first}, {last}) AS {number}"
            f" {join} {table.name} AS {alias} ON {alias}.{name} = {number}{ending}"
        ), order

    def named_columns(self) -> tuple[str, str]:
        """Return a join by columns of one name, or a query with names of its columns."""
        tables = self.random.sample(self.schema.tables[:3], 2)
        a, b = self.alias(), self.alias()
        shared = [each.name for each in tables[0].columns if each in _plain(tables[1])]
        scope = Scope().with_columns(a, tables[0].columns).with_columns(b, tables[1].columns)
        where = self.where(scope, self.by_key(tables[0], a))
        if shared and self.chance(0.7):
            join = f"JOIN {tables[1].name} AS {b} USING ({self.random.choice(shared)})"
        else:
            join = f"JOIN {tables[1].name} AS {b} ON {self._correlated(tables[1], b, scope)}"
        kind = self.random.choice(("", "LEFT "))
        items = self.items(scope, self.types(scope))
        named = ", ".join(
            f'{item} AS "{name}"' for item, name in zip(items, ("p", "q", "r s", "t"), strict=False)
        )
        return f"SELECT {named} FROM {tables[0].name} AS {a} {kind}{join}{where}", "none"

    def ties(self) -> tuple[str, str]:
        """Return the first rows with those that are equal to the last."""
        source, scope, found = self.source()
        items = self.items(scope, self.types(scope))
        first = self.random.choice(("1", "2", "3"))
        where = self.where(scope, found)
        return (
            (
                f"SELECT {', '.join(items)} FROM {source}{where} ORDER BY 1 FETCH FIRST ({first})"
                " ROWS WITH TIES"
            ),
            "none",
        )

    def page(self) -> tuple[str, str]:
        """Return a query over the first rows of a table in the order of its key, or an extreme."""
        table = self.random.choice([each for each in self.schema.tables if each.key])
        a, b = self.alias(), self.alias()
        own = Scope().with_columns(a, table.columns)
        where = self.where(own, "" if self.chance(0.6) else self.by_key(table, a))
        descending = self.random.choice(("", " DESC"))
        order = ", ".join(f"{a}.{name}{descending}" for name in table.key)
        rows = f"FROM {table.name} AS {a}{where}"
        if self.chance(0.3):
            column = table.column(self.random.choice((*table.key, *table.indexed)))
            if column.type not in UNORDERED:
                function = self.random.choice(("max", "min"))
                return f"SELECT {function}({a}.{column.name}) {rows}", "total"
        page = f"(SELECT {a}.* {rows} ORDER BY {order}{self._limit()}) AS {b}"
        scope = Scope().with_columns(b, table.columns)
        if self.chance(0.5):
            page, scope = self._joined(page, b, table, scope)
        items = ", ".join(self.items(scope, self.types(scope)))
        if self.chance(0.2):
            return f"SELECT {items} FROM {page} UNION ALL SELECT {items} FROM {page}", "none"
        return f"SELECT {items} FROM {page}", "none"

    def recursive(self) -> tuple[str, str]:
        """Return a recursive query."""
        table, alias = self.random.choice(self.schema.tables), self.alias()
        scope = Scope().with_columns(alias, table.columns)
        start = (
            f"SELECT coalesce({self.typed_leaf('int', scope)}, 1) % 5 FROM {table.name} AS {alias}"
            f" WHERE {self.by_key(table, alias)}"
        )
        step = f"SELECT v + 1 FROM w WHERE v < {self.random.choice(('3', '5'))}"
        keyed = [
            (each, name)
            for each in self.schema.tables
            for name in each.key[:1]
            if each.column(name).type in INTEGERS
        ]
        if keyed and self.chance(0.6):
            other, name = self.random.choice(keyed)
            inner = self.alias()
            value = self.typed_leaf("int", Scope().with_columns(inner, other.columns))
            join = self.random.choice((f"{inner}.{name} = v", f"{inner}.n = v"))
            step = f"SELECT coalesce({value}, 2) % 7 FROM {other.name} AS {inner} JOIN w ON {join}"
        return (
            (
                f"WITH RECURSIVE w (v) AS ({start} UNION {step}) SELECT v, count(*) OVER () FROM w"
                " ORDER BY 1"
            ),
            "total",
        )

    def of_sets(self) -> tuple[str, str]:
        """Return a query with further aggregates, windows and frames."""
        source, scope, found = self.source()
        where = self.where(scope, found)
        number, text = self.typed_leaf("int", scope), self.typed_leaf("text", scope)
        names = ", ".join(name for name, each in scope.columns if each.type != "jsonb")
        key = self.scalar(self.type(scope), scope, 1)
        return self.random.choice(
            (
                (
                    f"SELECT {key}, percentile_disc(0.5) WITHIN GROUP (ORDER BY {number}) FROM"
                    f" {source}{where} GROUP BY 1"
                ),
                (
                    f"SELECT {key}, string_agg(DISTINCT {text}, '-' ORDER BY {text}) FROM"
                    f" {source}{where} GROUP BY 1"
                ),
                (
                    f"SELECT count(*), sum({number}) FILTER (WHERE {self.condition(scope, 1)})"
                    f" FROM {source}{where} HAVING count(*) >= 0"
                ),
                (
                    f"SELECT {key} AS k, max({text}) FROM {source}{where} GROUP BY k HAVING"
                    f" max({text}) > 'a' OR min({number}) IS NULL"
                ),
                (
                    f"SELECT {number}, sum({number}::bigint) OVER (ORDER BY {names} ROWS BETWEEN 1"
                    f" PRECEDING AND CURRENT ROW) FROM {source}{where}"
                ),
                (
                    f"SELECT {text}, count(*) OVER w, max({number}) OVER w FROM {source}{where}"
                    f" WINDOW w AS (PARTITION BY {text})"
                ),
                (
                    f"SELECT {number}, sum(count(*)) OVER (ORDER BY {number}) FROM {source}{where}"
                    f" GROUP BY {number}"
                )
                if number[0] == "x"
                else f"SELECT count(*) FROM {source}{where}",
                (
                    f"SELECT every({self.condition(scope, 1)}), bit_or({number}), var_pop({number}"
                    f" % 100) FROM {source}{where}"
                ),
                (
                    f"SELECT (SELECT count(*) FROM (SELECT 1 FROM {source}{where}) AS q),"
                    f" {self.parameter('int', cast=1)}"
                ),
                f"SELECT ARRAY(SELECT {text} FROM {source}{where} ORDER BY 1)",
                (
                    f"SELECT jsonb_object_agg({text}, {number}) FILTER (WHERE {text} IS NOT NULL)"
                    f" IS NULL FROM {source}{where}"
                ),
                f"SELECT unnest(ARRAY[{number}, 1]), {text} FROM {source}{where}",
                (
                    f"SELECT max({text}) FROM {source}{where} UNION ALL SELECT min({text}) FROM"
                    f" {source}{where}"
                ),
                f"SELECT {key} IN (SELECT {key} FROM {source}{where}) FROM {source}{where}",
            )
        ), "none"

    def catalog(self) -> Statement:
        """Return a query of the catalog."""
        schema = "current_schema()"
        of_table = (
            f"(SELECT oid FROM pg_class WHERE relname = {self._name()} AND relnamespace ="
            f" {schema}::regnamespace)"
        )
        text = self.random.choice(
            (
                f"SELECT relname, relkind FROM pg_class WHERE relname = {self._name()}",
                (
                    "SELECT a.attname, a.attnum, t.typname FROM pg_attribute AS a JOIN pg_type AS"
                    " t ON t.oid = a.atttypid"
                    f" WHERE a.attrelid = {of_table} AND a.attnum > 0 ORDER BY a.attnum"
                ),
                (
                    "SELECT typname, typlen FROM pg_type WHERE oid ="
                    f" {self.parameter('int', ('23', '25', '1700', '16'), cast=0)}"
                ),
                (
                    "SELECT oid FROM pg_type WHERE typname ="
                    f" {self.parameter('text', ('int4', 'text', 'mood'), cast=0)}"
                ),
                f"SELECT count(*) FROM pg_index WHERE indrelid = {of_table}",
                (
                    f"SELECT conname, contype FROM pg_constraint WHERE conrelid = {of_table} ORDER"
                    " BY 1"
                ),
                (
                    "SELECT column_name, data_type FROM information_schema.columns WHERE"
                    f" table_name = {self._name()} ORDER BY 1"
                ),
                (
                    "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON"
                    " n.oid = c.relnamespace"
                    f" WHERE c.relname IN ({self._name()}, {self._name()}) AND n.nspname ="
                    " current_schema() ORDER BY 2"
                ),
                "SELECT proname FROM pg_proc WHERE proname = 'lower' ORDER BY oid LIMIT 1",
                f"SELECT {self._name()}::regclass::oid = {of_table}",
                "SELECT current_user, current_database() IS NULL, now() = now()",
            )
        )
        return Statement(text, tuple(self.parameters), "none", is_of_catalog=True)

    def _name(self) -> str:
        return self.parameter("text", ("t0", "t1", "t2", "v0", "none"), cast=0)

    def star(self) -> tuple[str, str]:
        """Return a SELECT of columns, as most clients write it."""
        source, scope, found = self.source()
        names = [name for name, _ in scope.columns]
        self.random.shuffle(names)
        items = names[: self.random.randint(1, 4)]
        if self.chance(0.3):
            return f"SELECT * FROM {source}{self.where(scope, found)}", "none"
        where = self.where(scope, found)
        of_json = {name for name, column in scope.columns if column.type == "jsonb"}
        if of_json & set(items):
            return f"SELECT {', '.join(items)} FROM {source}{where}", "none"
        ending, order = self.ending(len(items), scope)
        return f"SELECT {', '.join(items)} FROM {source}{where}{ending}", order

    def aggregate(self, scope: Scope, depth: int = 1) -> str:
        """Return a call of an aggregate."""
        type = self.random.choice(SUMMED)
        number = self.scalar(type, scope, depth - 1)
        text = self.scalar("text", scope, depth - 1)
        any_type = self.random.choice(
            ("int", "text", "date", "bigint", "numeric", "timestamp", "uuid")
        )
        value = self.typed_leaf("int" if any_type == "uuid" else any_type, scope)
        call = self.random.choice(
            (
                "count(*)",
                f"count({value})",
                f"count(DISTINCT {value})",
                f"sum({number})",
                f"avg({number})",
                f"min({value})",
                f"max({value})",
                f"min({text})",
                f"bool_and({self.condition(scope, 0)})",
                f"bool_or({self.condition(scope, 0)})",
                f"string_agg({text}, ',' ORDER BY {text})",
                f"array_agg({value} ORDER BY {value})",
                f"jsonb_agg({value} ORDER BY {value})",
                f"array_agg(DISTINCT {value})",
                f"sum(DISTINCT {number})",
                f"stddev({self.typed_leaf('int', scope)} % 10)",
                f"max({self.typed_leaf('float8', scope)})",
                f"jsonb_object_agg(coalesce({value}::text, ''), 1)",
                f"percentile_cont(0.3) WITHIN GROUP (ORDER BY {self.typed_leaf('int', scope)})",
                f"percentile_disc(0.5) WITHIN GROUP (ORDER BY {value})",
                f"mode() WITHIN GROUP (ORDER BY {value})",
            )
        )
        if self.chance(0.2):
            call += f" FILTER (WHERE {self.condition(scope, 1)})"
        return call

    def grouped(self) -> tuple[str, str]:
        """Return a SELECT with aggregates."""
        source, scope, found = self.source()
        keys = self.items(scope, [self.type(scope) for _ in range(self.random.randint(0, 2))])
        is_of_sets = len(keys) == 2 and self.chance(0.2)
        if is_of_sets:  # constants are not supported in them
            keys = self.random.sample(
                [name for name, each in scope.columns if each.type != "jsonb"], 2
            )
        aggregates = [self.aggregate(scope) for _ in range(self.random.randint(1, 3))]
        where = self.where(scope, found)
        group = f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
        if is_of_sets:
            group = " GROUP BY " + self.random.choice(
                ("ROLLUP (1, 2)", "CUBE (1, 2)", "GROUPING SETS ((1), (2), ())")
            )
        having = (
            (
                f" HAVING count(*) {self.random.choice(('>', '<=', '='))}"
                f" {self.parameter('bigint', ('1', '2'))}"
            )
            if self.chance(0.2)
            else ""
        )
        items = [*keys, *aggregates]
        if "jsonb_agg" in "".join(aggregates):
            return f"SELECT {', '.join(items)} FROM {source}{where}{group}{having}", "none"
        ending, order = self.ending(len(items))
        return f"SELECT {', '.join(items)} FROM {source}{where}{group}{having}{ending}", order

    def together(self) -> tuple[str, str]:
        """Return UNION, EXCEPT or INTERSECT of queries."""
        types = self.types()
        parts = []
        for _ in range(self.random.randint(2, 3)):
            source, scope, found = self.source()
            parts.append(
                f"SELECT {', '.join(self.items(scope, types))} FROM"
                f" {source}{self.where(scope, found)}"
            )
        text = parts[0]
        for each in parts[1:]:
            kind = self.random.choice(
                (
                    "UNION ALL",
                    "UNION ALL",
                    "UNION",
                    "EXCEPT",
                    "INTERSECT",
                    "EXCEPT ALL",
                    "INTERSECT ALL",
                )
            )
            text = f"{text} {kind} {each}"
        ending, order = self.ending(len(types))
        return text + ending, order

    def distinct(self) -> tuple[str, str]:
        """Return SELECT DISTINCT, or DISTINCT ON."""
        source, scope, found = self.source()
        items = self.items(scope, self.types(scope))
        where = self.where(scope, found)
        if self.chance(0.5):
            ending, order = self.ending(len(items))
            return f"SELECT DISTINCT {', '.join(items)} FROM {source}{where}{ending}", order
        keys = ", ".join(str(i + 1) for i in range(len(items)))
        return (
            (
                f"SELECT DISTINCT ON ({items[0]}) {', '.join(items)} FROM {source}{where} ORDER BY"
                f" {keys}"
            ),
            "total",
        )

    def windowed(self) -> tuple[str, str]:
        """Return a SELECT with window functions."""
        source, scope, found = self.source()
        partition = self.scalar(self.type(scope), scope, 0)
        names = [name for name, column in scope.columns if column.type not in ("jsonb",)]
        order = ", ".join(names)  # all columns, so that there are no peers but equal rows
        number = self.typed_leaf("int", scope)
        by = f"PARTITION BY {partition} " if self.chance(0.7) else ""
        over = f"OVER ({by}ORDER BY {order}{self._frame() if self.chance(0.5) else ''})"
        function = self.random.choice(
            (
                "row_number()",
                "rank()",
                "dense_rank()",
                "count(*)",
                f"sum({number}::bigint)",
                f"max({number})",
                f"lag({number})",
                f"lead({number}, 1, 0)",
                f"first_value({number})",
                f"last_value({number})",
                f"nth_value({number}, 2)",
                "ntile(2)",
            )
        )
        extra = self.random.choice(names)
        return f"SELECT {extra}, {function} {over} FROM {source}{self.where(scope, found)}", "none"

    def _frame(self) -> str:
        """Return the frame of a window function."""
        unit = self.random.choice(("ROWS", "GROUPS", "RANGE"))
        given = self.given("bigint", self.random.choices(("0", "1", "3"), k=RUNS))
        offsets = ("1", "2", "0", given)
        distance = self.random.choice(offsets)
        starts = ["UNBOUNDED PRECEDING", "CURRENT ROW"]
        ends = ["CURRENT ROW", "UNBOUNDED FOLLOWING"]
        if unit != "RANGE":
            starts += [f"{distance} PRECEDING", f"{distance} PRECEDING"]
            ends += [f"{distance} FOLLOWING", "2 FOLLOWING"]
        between = f"BETWEEN {self.random.choice(starts)} AND {self.random.choice(ends)}"
        excluded = ("", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")
        return f" {unit} {between}{self.random.choice(excluded)}"

    def with_part(self) -> tuple[str, str]:
        """Return a query with a WITH."""
        types = self.types()
        names = [f"c{i}" for i in range(len(types))]
        text, _ = self._part(types)
        alias = self.alias()
        scope = Scope(
            tuple(
                (f"{alias}.{name}", Column(name, type))
                for name, type in zip(names, types, strict=True)
            )
        )
        items = self.items(scope, self.types(scope))
        where = self.where(scope, "")
        ending, order = self.ending(len(items))
        kept = self.random.choice(("", "", "MATERIALIZED "))
        joined = ""
        if self.chance(0.3):
            more = self.alias()
            joined = f" JOIN w AS {more} ON {more}.c0 = {alias}.c0"
        return (
            (
                f"WITH w ({', '.join(names)}) AS {kept}({text}) SELECT {', '.join(items)} FROM w"
                f" AS {alias}{joined}{where}{ending}"
            ),
            order,
        )

    def _part(self, types: Sequence[str]) -> tuple[str, Scope]:
        source, scope, found = self.source()
        return (
            f"SELECT {', '.join(self.items(scope, types))} FROM {source}{self.where(scope, found)}",
            scope,
        )

    def nested(self) -> tuple[str, str]:
        """Return a query over a query in FROM."""
        types = self.types()
        alias = self.alias()
        names = ", ".join(f"c{i}" for i in range(len(types)))
        text, _ = self._part(types)
        if self.chance(0.3):
            text += f" ORDER BY {', '.join(str(i + 1) for i in range(len(types)))} LIMIT 3"
        scope = Scope(
            tuple((f"{alias}.c{i}", Column(f"c{i}", type)) for i, type in enumerate(types))
        )
        items = self.items(scope, self.types(scope))
        if self.chance(0.4):
            items = [self.aggregate(scope)]
        where = self.where(scope, "")
        order = "none"
        return f"SELECT {', '.join(items)} FROM ({text}) AS {alias} ({names}){where}", order

    def constant(self) -> tuple[str, str]:
        """Return a query without a table."""
        items = self.items(
            Scope(), [self.random.choice(SELECTED) for _ in range(self.random.randint(1, 3))]
        )
        if self.chance(0.3):
            types = self.types()
            rows = ", ".join("(" + ", ".join(self.items(Scope(), types)) + ")" for _ in range(2))
            return f"VALUES {rows}", "none"
        return f"SELECT {', '.join(items)}", "total"

    def locking(self) -> tuple[str, str]:
        """Return a SELECT that locks rows."""
        table = self.random.choice([each for each in self.schema.tables if not each.is_view])
        alias = self.alias()
        scope = Scope().with_columns(alias, table.columns)
        found = self.by_key(table, alias)
        items = [name for name, _ in self.random.sample(scope.columns, 2)]
        items += self.items(Scope(scope.columns), [self.random.choice(("int", "text"))])
        kind = self.random.choice(
            ("UPDATE", "SHARE", "NO KEY UPDATE", "UPDATE NOWAIT", "UPDATE SKIP LOCKED")
        )
        ending, order = self.ending(len(items))
        return (
            (
                f"SELECT {', '.join(items)} FROM {table.name} AS"
                f" {alias}{self.where(scope, found)}{ending} FOR {kind}"
            ),
            order,
        )

    def unnested(self) -> tuple[str, str]:
        """Return a query of a set-returning function."""
        source, scope, found = self.source()
        alias = self.alias()
        kind = self.random.choice(("unnest", "series", "bounded", "lateral", "item"))
        if kind == "item":
            items = [f"unnest({self.typed_leaf('int[]', scope)})"]
            items += self.items(scope, self.types(scope))
            return f"SELECT {', '.join(items)} FROM {source}{self.where(scope, found)}", "none"
        some = ("0", "1", "2", "3", "4")
        bounds = [self.given("int", self.random.choices(some, k=RUNS)) for _ in range(2)]
        step = self.random.choice(("", ", 1", ", 2", ", -1"))
        more, column = {
            "bounded": (
                f"generate_series({', '.join(bounds)}{step}) AS {alias} (u)",
                Column("u", "int"),
            ),
            "unnest": (
                f"unnest({self.typed_leaf('int[]', scope)}) AS {alias} (u)",
                Column("u", "int"),
            ),
            "series": (
                f"generate_series(1, {self.random.randint(0, 4)}) AS {alias} (u)",
                Column("u", "int"),
            ),
            "lateral": (
                f"LATERAL (SELECT {self.scalar('int', scope, 1)} AS u) AS {alias}",
                Column("u", "int"),
            ),
        }[kind]
        scope = scope.with_columns(alias, (column,))
        items = [f"{alias}.u", *self.items(scope, self.types(scope))]
        where = self.where(scope, found)
        ending, order = self.ending(len(items))
        return f"SELECT {', '.join(items)} FROM {source} CROSS JOIN {more}{where}{ending}", order


def _plain(table: Table) -> list[Column]:
    """Return the columns of a table whose types have one form, without their rules."""
    return [each for each in table.columns if each.type in ("int", "text")]
