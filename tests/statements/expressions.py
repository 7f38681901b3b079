"""Random scalars of a type over the columns of a scope."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.statements.calls import CALLS, CONDITIONS
from tests.statements.schema import Column
from tests.statements.values import INTEGERS, NUMBERS, Values, plain

_OPERAND = re.compile("<([a-z].*?|T)>")
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
        if type == "bool":
            return [lambda _, scope, depth: self.condition(scope, depth)]
        if type in NUMBERS:
            return [self._arithmetic, self._call, self._call, self._call]
        return [self._call, self._call, self._call]

    def _call(self, type: str, scope: Scope, depth: int) -> str:
        return self._filled(self.random.choice(CALLS[type]), type, scope, depth)

    def _filled(self, call: str, type: str, scope: Scope, depth: int) -> str:
        """Return a call with its operands."""

        def operand(match: re.Match[str]) -> str:
            of = type if match[1] == "T" else match[1]
            return (
                self.scalar(of, scope, depth - 1)
                if self.chance(0.4)
                else self.typed_leaf(of, scope)
            )

        return _OPERAND.sub(operand, call).replace("::T", f"::{type}")

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
        return f"({self._filled(self.random.choice(CONDITIONS), 'bool', scope, depth)})"
