"""Random scalars of a type over the columns of a scope."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.statements.schema import Column
from tests.statements.values import INTEGERS, NUMBERS, Values, plain

# Types whose values are compared and sorted.
COMPARED = (
    *("int", "bigint", "smallint", "numeric", "text", "uuid", "date", "timestamp"),
    *("timestamptz", "bool", "float8", "time", "interval", "bytea", "int[]", "text[]", "jsonb"),
    *("char(4)", "mood"),
)


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may name: columns with their qualified names."""

    columns: tuple[tuple[str, Column], ...] = ()

    def of(self, type: str) -> list[tuple[str, Column]]:
        """Return the columns of a type."""
        return [each for each in self.columns if plain(each[1].type) == plain(type)]

    def with_columns(self, alias: str, columns: Sequence[Column]) -> "Scope":
        """Return a scope that has those of one more table."""
        return Scope((*self.columns, *((f"{alias}.{each.name}", each) for each in columns)))


class Expressions(Values):
    """Makes scalars; `failing` ones may have an error for some values."""

    failing = 0.02
    may_have_subqueries = True

    def chance(self, p: float) -> bool:
        """Return true with a probability."""
        return self.random.random() < p

    def leaf(self, type: str, scope: Scope, *, cast: float = 0.3) -> str:
        """Return a column or a literal of a type."""
        found = scope.of(type)
        if found and self.chance(0.75):
            return self.random.choice(found)[0]
        return self.parameter(plain(type), cast=cast)

    def column(self, type: str, scope: Scope) -> str:
        """Return a column of a type, if there is one."""
        found = scope.of(type)
        return self.random.choice(found)[0] if found else ""

    def typed_leaf(self, type: str, scope: Scope) -> str:
        """Return a column, or a literal that says its type."""
        return self.leaf(type, scope, cast=1)

    def scalar(self, type: str, scope: Scope, depth: int = 2) -> str:
        """Return an expression of a type."""
        type = plain(type)
        if depth <= 0 or self.chance(0.25):
            return self.typed_leaf(type, scope)
        makers = [self._case, self._coalesce, *self._makers(type)]
        if self.may_have_subqueries:
            makers.append(self._subquery)
        return self.random.choice(makers)(type, scope, depth - 1)

    def _makers(self, type: str) -> list[Callable[[str, Scope, int], str]]:
        match type:
            case "smallint" | "int" | "bigint":
                return [self._arithmetic, self._of_integer, self._of_integer]
            case "numeric" | "float8":
                return [self._arithmetic, self._of_number]
            case "text":
                return [self._of_text, self._of_text, self._of_text]
            case "bool":
                return [lambda _, scope, depth: self.condition(scope, depth)]
            case "date" | "timestamp" | "timestamptz" | "interval" | "time":
                return [self._of_time, self._of_time]
            case "jsonb":
                return [self._of_json, self._of_json]
            case "int[]" | "text[]":
                return [self._of_array, self._of_array]
            case "uuid":
                return [self._nullif]
            case _:
                return [self._nullif]

    def _case(self, type: str, scope: Scope, depth: int) -> str:
        other = f" ELSE {self.scalar(type, scope, depth)}" if self.chance(0.7) else ""
        if self.chance(0.3):
            of = self.random.choice(("int", "text"))
            whens = f"{self.typed_leaf(of, scope)} WHEN {self.parameter(of)}"
            return f"CASE {whens} THEN {self.scalar(type, scope, depth)}{other} END"
        when = self.condition(scope, depth)
        return f"CASE WHEN {when} THEN {self.scalar(type, scope, depth)}{other} END"

    def _coalesce(self, type: str, scope: Scope, depth: int) -> str:
        return f"coalesce({self.scalar(type, scope, depth)}, {self.typed_leaf(type, scope)})"

    def _nullif(self, type: str, scope: Scope, _: int) -> str:
        return f"nullif({self.typed_leaf(type, scope)}, {self.typed_leaf(type, scope)})"

    def _subquery(self, type: str, scope: Scope, depth: int) -> str:
        raise NotImplementedError

    def _arithmetic(self, type: str, scope: Scope, depth: int) -> str:
        a = self.scalar(type, scope, depth)
        if (column := self.column(type, scope)) and self.chance(self.failing * 3):
            operator = self.random.choice(("/", "%", "*")) if type in INTEGERS else "/"
            return f"({a} {operator} {column})"
        if type in INTEGERS:
            small = self.random.choice(("2", "3", "7"))
            a = f"({a} % {small}::{type})"
            operator = self.random.choice("+-*/%")
            b = small if operator in "/%" else f"({self.typed_leaf(type, scope)} % 100::{type})"
            return f"({a} {operator} {b}::{type})" if b == small else f"({a} {operator} {b})"
        return f"({a} {self.random.choice('+-')} {self.typed_leaf(type, scope)})"

    def _of_integer(self, type: str, scope: Scope, depth: int) -> str:
        text = self.scalar("text", scope, depth)
        choices = [
            f"length({text})::{type}",
            f"abs({self.scalar(type, scope, depth)} % 50::{type})",
            f"greatest({self.typed_leaf(type, scope)}, {self.typed_leaf(type, scope)})",
            f"least({self.typed_leaf(type, scope)}, {self.typed_leaf(type, scope)})",
            f"strpos({text}, {self.leaf('text', scope)})::{type}",
            f"octet_length({text})::{type}",
            f"extract(year FROM {self.typed_leaf('date', scope)})::{type}",
            f"coalesce(array_length({self.typed_leaf('int[]', scope)}, 1), 0)::{type}",
            f"cardinality({self.typed_leaf('text[]', scope)})::{type}",
            f"({self.condition(scope, depth)})::int::{type}",
            f"sign({self.typed_leaf('numeric', scope)})::{type}",
            f"ascii({text})::{type}",
            f"({self.typed_leaf('int[]', scope)})[{self.random.randint(0, 3)}]::{type}",
            f"({self.typed_leaf('date', scope)} - {self.typed_leaf('date', scope)})::{type}"
            if type != "smallint"
            else "1::smallint",
            f"jsonb_array_length('[1,2]'::jsonb)::{type}",
            f"mod({self.typed_leaf(type, scope)}, 5::{type})",
        ]
        if (column := self.column("text", scope)) and self.chance(self.failing * 2):
            return f"({column})::{type}"
        return self.random.choice(choices)

    def _of_number(self, type: str, scope: Scope, depth: int) -> str:
        a = self.scalar(type, scope, depth)
        integer = self.random.choice(INTEGERS)
        choices = [
            f"abs({a})",
            f"round({a})",
            f"floor({a})",
            f"ceil({a})",
            f"trunc({a})",
            f"({self.typed_leaf(integer, scope)})::{type}",
            f"greatest({a}, {self.typed_leaf(type, scope)})",
            f"-({a})",
        ]
        if type == "numeric":
            choices += [
                f"round({a}, {self.random.randint(0, 3)})",
                f"({a} * {self.random.choice(('2', '1.5', '-1'))})",
                f"extract(epoch FROM {self.typed_leaf('date', scope)})",
                f"extract(day FROM {self.typed_leaf('timestamp', scope)})",
            ]
        return self.random.choice(choices)

    def _of_text(self, _: str, scope: Scope, depth: int) -> str:
        a = self.scalar("text", scope, depth)
        leaf = self.leaf("text", scope)
        any_type = self.random.choice(
            ("int", "bool", "date", "numeric", "uuid", "bigint", "timestamp", "jsonb", "int[]")
        )
        shown = self.typed_leaf(any_type, scope)
        n = self.random.randint(-2, 4)
        return self.random.choice(
            (
                f"upper({a})",
                f"lower({a})",
                f"({a} || {leaf})",
                f"({a} || {self.typed_leaf('int', scope)})",
                f"concat({a}, {self.typed_leaf('int', scope)}, {self.typed_leaf('bool', scope)})",
                f"concat_ws('-', {a}, {self.typed_leaf('text', scope)})",
                f"substr({a}, {n})",
                f"substring({a} FROM {n} FOR {abs(n)})",
                f"left({a}, {n})",
                f"right({a}, {n})",
                f"replace({a}, {leaf}, 'q')",
                f"trim({a})",
                f"ltrim({a}, 'a')",
                f"reverse({a})",
                f"repeat({a}, {abs(n)})",
                f"lpad({a}, {abs(n)}, '*')",
                f"rpad({a}, {abs(n)})",
                f"initcap({a})",
                f"split_part({a}, ' ', {max(1, abs(n))})",
                f"md5({a})",
                f"({shown})::text",
                f"({self.typed_leaf('jsonb', scope)} ->> 'a')",
                f"({self.typed_leaf('jsonb', scope)} #>> '{{a,b}}')",
                f"array_to_string({self.typed_leaf('text[]', scope)}, ',')",
                f"to_char({self.typed_leaf('timestamp', scope)}, 'YYYY-MM-DD HH24:MI:SS')",
                f"to_char({self.typed_leaf('int', scope)} % 1000, 'FM0999')",
                f"translate({a}, 'ab', 'xy')",
                f"quote_literal({a})",
                f"regexp_replace({a}, '[a-b]+', 'R')",
                f"format('%s-%s', {a}, {self.typed_leaf('int', scope)})",
                f"encode({self.typed_leaf('bytea', scope)}, 'hex')",
                f"greatest({a}, {leaf})",
                f"nullif({a}, {leaf})",
                f"overlay({a} PLACING 'zz' FROM 1 FOR 1)",
                f"jsonb_typeof({self.typed_leaf('jsonb', scope)})",
                f"({self.typed_leaf('text[]', scope)})[1]",
                f"({a})::varchar(3)::text",
            )
        )

    def _of_time(self, type: str, scope: Scope, depth: int) -> str:

        def leaf(type: str) -> str:
            return self.typed_leaf(type, scope)

        unit = self.random.choice(("day", "month", "year", "hour", "week", "quarter"))
        days = self.random.randint(-40, 40)
        match type:
            case "date":
                return self.random.choice(
                    (
                        f"({leaf('date')} + {days})",
                        f"({leaf('timestamp')})::date",
                        f"({leaf('date')} + {leaf('interval')})::date",
                        f"greatest({leaf('date')}, {leaf('date')})",
                        f"make_date(2020, {abs(days) % 12 + 1}, 5)",
                    )
                )
            case "timestamp":
                return self.random.choice(
                    (
                        f"({leaf('timestamp')} + {leaf('interval')})",
                        f"date_trunc('{unit}', {leaf('timestamp')})",
                        f"({leaf('date')})::timestamp",
                        f"({leaf('timestamptz')} AT TIME ZONE 'UTC')",
                        f"({leaf('timestamptz')} AT TIME ZONE 'Europe/Berlin')",
                        f"({leaf('date')} + {leaf('time')})",
                    )
                )
            case "timestamptz":
                return self.random.choice(
                    (
                        f"({leaf('timestamptz')} - {leaf('interval')})",
                        f"date_trunc('{unit}', {leaf('timestamptz')})",
                        f"({leaf('timestamp')} AT TIME ZONE 'America/New_York')",
                        f"to_timestamp({abs(days) * 1000})",
                        f"({leaf('date')})::timestamptz",
                    )
                )
            case "interval":
                return self.random.choice(
                    (
                        f"({leaf('timestamp')} - {leaf('timestamp')})",
                        f"({leaf('interval')} + {leaf('interval')})",
                        f"({leaf('interval')} * {days})",
                        f"justify_hours({leaf('interval')})",
                        f"make_interval(days => {days})",
                        f"age({leaf('timestamp')}, {leaf('timestamp')})",
                    )
                )
            case _:
                return self.random.choice(
                    (
                        f"({leaf('time')} + {leaf('interval')})",
                        f"({leaf('timestamp')})::time",
                    )
                )

    def _of_json(self, _: str, scope: Scope, depth: int) -> str:
        leaf = self.typed_leaf("jsonb", scope)
        return self.random.choice(
            (
                f"({leaf} -> 'a')",
                f"({leaf} -> 0)",
                f"({leaf} #> '{{a,b}}')",
                f"to_jsonb({self.typed_leaf('text', scope)})",
                f"to_jsonb({self.typed_leaf('int', scope)})",
                f"jsonb_build_object('x', {self.typed_leaf('int', scope)}, 'y', {leaf})",
                f"jsonb_build_array({leaf}, {self.typed_leaf('bool', scope)})",
                f"({leaf} || '[1]'::jsonb)",
                f"jsonb_set({leaf}, '{{a}}', '1')" if self.chance(0.2) else leaf,
                f"jsonb_strip_nulls({leaf})",
                f"({self.parameter('jsonb', cast=1)})",
                f"to_jsonb({self.typed_leaf('int[]', scope)})",
                f"to_jsonb({self.typed_leaf('numeric', scope)})",
            )
        )

    def _of_array(self, type: str, scope: Scope, depth: int) -> str:
        leaf, element = self.typed_leaf(type, scope), type.removesuffix("[]")
        item = self.scalar(element, scope, min(depth, 1))
        return self.random.choice(
            (
                f"array_append({leaf}, {item})",
                f"array_prepend({item}, {leaf})",
                f"({leaf} || {self.typed_leaf(type, scope)})",
                f"ARRAY[{item}, {self.typed_leaf(element, scope)}]",
                f"array_remove({leaf}, {item})",
                f"({leaf})[1:1]",
                f"array_replace({leaf}, {item}, {item})",
                *(
                    (f"string_to_array({self.typed_leaf('text', scope)}, ' ')",)
                    * (element == "text")
                ),
            )
        )

    # --- conditions --------------------------------------------------------------------

    def condition(self, scope: Scope, depth: int = 2) -> str:
        """Return an expression of type bool."""
        if depth > 0 and self.chance(0.3):
            return self.random.choice(
                (
                    f"({self.condition(scope, depth - 1)} AND {self.condition(scope, depth - 1)})",
                    f"({self.condition(scope, depth - 1)} OR {self.condition(scope, depth - 1)})",
                    f"NOT ({self.condition(scope, depth - 1)})",
                    f"(({self.condition(scope, depth - 1)}) IS NOT TRUE)",
                )
            )
        return self.random.choice(
            (
                *(self._comparison, self._comparison, self._comparison, self._is_null, self._in),
                *(self._between, self._like, self._any, self._distinct, self._rows, self._other),
            )
        )(scope, max(depth - 1, 0))

    def _compared(self, scope: Scope) -> str:
        found = [each for _, each in scope.columns if plain(each.type) in COMPARED]
        if found and self.chance(0.85):
            return plain(self.random.choice(found).type)
        return self.random.choice(COMPARED)

    def _comparison(self, scope: Scope, depth: int) -> str:
        type = self._compared(scope)
        a = self.scalar(type, scope, depth - 1)
        operator = self.random.choice(("=", "=", "<", "<=", ">", ">=", "<>"))
        if type in NUMBERS and self.chance(0.3):
            type = self.random.choice(NUMBERS)
        b = self.scalar(type, scope, depth - 1) if self.chance(0.3) else self.leaf(type, scope)
        return f"{a} {operator} {b}"

    def _is_null(self, scope: Scope, depth: int) -> str:
        type = self._compared(scope)
        return f"({self.scalar(type, scope, depth)} IS {self.random.choice(('', 'NOT '))}NULL)"

    def _in(self, scope: Scope, depth: int) -> str:
        type = self._compared(scope)
        items = ", ".join(self.parameter(type) for _ in range(self.random.randint(1, 4)))
        no = self.random.choice(("", "", "NOT "))
        return f"{self.scalar(type, scope, depth - 1)} {no}IN ({items})"

    def _between(self, scope: Scope, depth: int) -> str:
        type = self._compared(scope)
        kind = self.random.choice(("BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC"))
        a = self.scalar(type, scope, depth - 1)
        return f"{a} {kind} {self.parameter(type)} AND {self.parameter(type)}"

    def _like(self, scope: Scope, depth: int) -> str:
        pattern = self.random.choice(("a%", "%b%", "_", "%", "a_c", "A%"))
        kind = self.random.choice(("LIKE", "NOT LIKE", "ILIKE", "~", "SIMILAR TO"))
        if kind == "~":
            pattern = self.random.choice(("^a", "b$", "[0-9]+", "a|b"))
        return f"{self.scalar('text', scope, depth)} {kind} '{pattern}'"

    def _any(self, scope: Scope, depth: int) -> str:
        if self.chance(0.5):
            item = self.random.choice(("int", "text"))
            array = self.leaf(f"{item}[]", scope, cast=1)
            kind = self.random.choice(("= ANY", "<> ALL", "= ANY", "> ANY"))
            return f"{self.scalar(item, scope, depth - 1)} {kind} ({array})"
        type = self._compared(scope)
        if type.endswith("[]"):
            type = "int"
        items = ", ".join(self.parameter(type, cast=1) for _ in range(self.random.randint(1, 3)))
        return f"{self.scalar(type, scope, depth - 1)} = ANY (ARRAY[{items}])"

    def _distinct(self, scope: Scope, depth: int) -> str:
        type = self._compared(scope)
        no = self.random.choice(("", "NOT "))
        a, b = self.scalar(type, scope, depth - 1), self.leaf(type, scope)
        return f"({a} IS {no}DISTINCT FROM {b})"

    def _rows(self, scope: Scope, depth: int) -> str:
        types = [self._compared(scope) for _ in range(2)]
        a = ", ".join(self.typed_leaf(type, scope) for type in types)
        b = ", ".join(self.parameter(type) for type in types)
        if self.chance(0.3):
            c = ", ".join(self.parameter(type) for type in types)
            return f"({a}) IN (({b}), ({c}))"
        return f"({a}) {self.random.choice(('=', '<', '>=', '<>'))} ({b})"

    def _other(self, scope: Scope, depth: int) -> str:
        json = self.typed_leaf("jsonb", scope)
        return self.random.choice(
            (
                f"{json} ? 'a'",
                f"{json} @> '{{\"a\": 1}}'",
                f"{self.typed_leaf('int[]', scope)} @> {self.parameter('int[]', cast=1)}",
                f"{self.typed_leaf('int[]', scope)} && ARRAY[1, 2]",
                f"starts_with({self.scalar('text', scope, depth)}, 'a')",
                f"{self.typed_leaf('bool', scope)}",
                f"{self.typed_leaf('bool', scope)} IS {self.random.choice(('', 'NOT '))}TRUE",
                "true",
                f"({self.typed_leaf('date', scope)}, {self.typed_leaf('date', scope)}) OVERLAPS"
                f" ({self.typed_leaf('date', scope)}, {self.typed_leaf('date', scope)})",
            )
        )
