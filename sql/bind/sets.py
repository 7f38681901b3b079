"""Set-returning functions: join their rows to those of a relation, by row number.

    SELECT f(x), g(y) FROM t     t joined with the n-th rows of f and g, NULL where one has ended
    SELECT f(g(x)) FROM t        t joined with the rows of g, then with the rows of f

A call is bound to a `SetRef`. `SetCalls.join_rows` then joins the rows of all calls of a select
list to the query's. Calls in the arguments of a call come first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from foreshore.errors import FeatureNotSupported, SyntaxError_, WrongObjectType
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.registry import ResolvedTable
from foreshore.expr.functions.tables import is_table_function
from foreshore.expr.ir import (
    IN_STEP,
    Call,
    Case,
    Column,
    FlatMap,
    Join,
    Literal,
    Node,
    Relation,
    Scalar,
)
from foreshore.sql import ast
from foreshore.sql.bind.order import UNORDERED, RowOrder, ascending
from foreshore.sql.bind.record_columns import make_record
from foreshore.sql.rewrite.scalars import map_scalar, push_down
from foreshore.types import BOOL, INT8, ColumnType, SqlType, array_of, record_of

UNIT = Join(())  # one row without columns
AS_ITEM = "You might be able to move the set-returning function into a LATERAL FROM item."


class SetRef(Node, frozen=True, cache_hash=True):
    """The value of the `index`-th set-returning call, used only during binding."""

    index: int
    type: SqlType
    nullable: bool = True


@dataclass(slots=True)
class SetCall:
    """A set-returning call of a select list."""

    function: ResolvedTable
    args: tuple[Scalar, ...]

    def is_like(self, other: "SetCall") -> bool:
        """Return whether `other` is the same call written elsewhere."""
        return (self.function, self.args) == (other.function, other.args)


@dataclass
class SetCalls:
    """The set-returning calls of one query; equal calls are one.

    `places` are the positions of calls in the text, in the order of binding.
    """

    calls: list[SetCall] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def add(self, call: SetCall, at: int) -> Scalar:
        """Return the reference to a call that is written at `at`."""
        self.places.append(at)
        same = (i for i, each in enumerate(self.calls) if each.is_like(call))
        index = next(same, len(self.calls))
        if index == len(self.calls):
            self.calls.append(call)
        # A scalar during binding, which never occurs in a plan.
        return SetRef(index, type_of(call.function.outputs[0]))  # type: ignore[return-value]

    def used_by(self, scalars: Iterable[Scalar]) -> dict[int, SetCall]:
        """Return the calls to which scalars refer, and those in their arguments."""
        found: dict[int, SetCall] = {}
        new = references(scalars)
        while new:
            found |= {i: self.calls[i] for i in sorted(new)}
            new = references(arg for i in new for arg in self.calls[i].args) - found.keys()
        return found

    def join_rows(self, relation: Relation, scalars: Iterable[Scalar]) -> "WithSetRows":
        """Return `relation` joined with the rows of all calls that `scalars` use."""
        placed = WithSetRows(relation, {}, UNORDERED)
        left = self.used_by(scalars)
        while left:
            ready = {i: call for i, call in left.items() if not references(call.args) & left.keys()}
            placed = placed.with_further(ready)
            left = {i: call for i, call in left.items() if i not in ready}
        return placed


@dataclass(frozen=True)
class WithSetRows:
    """A relation joined with rows of set-returning calls: their values, and the rows' order."""

    relation: Relation
    values: dict[int, Scalar]
    order: RowOrder

    def over(self, scalar: Scalar) -> Scalar:
        """Return `scalar` with references to calls replaced by their values."""

        def value_of(node: Scalar, depth: int) -> Scalar | None:
            value = self.values.get(node.index) if isinstance(node, SetRef) else None
            return push_down(value, depth) if depth and value is not None else value

        return map_scalar(scalar, value_of)

    def with_further(self, calls: dict[int, SetCall]) -> "WithSetRows":
        """Return this joined with the rows of further calls, in step with each other."""
        over = [(each.function, tuple(map(self.over, each.args))) for each in calls.values()]
        rows = flat_map(self.relation, *over[0]) if len(over) == 1 else in_step(self.relation, over)
        values = {**self.values, **dict(zip(calls, rows.values, strict=True))}
        return WithSetRows(rows.relation, values, ascending(rows.number).within(self.order))


def references(scalars: Iterable[Scalar]) -> set[int]:
    """Return the indexes of set-returning calls to which `scalars` refer."""
    found: set[int] = set()

    def look(node: Scalar, depth: int) -> Scalar | None:
        if isinstance(node, SetRef):
            found.add(node.index)
        return None

    for scalar in scalars:
        map_scalar(scalar, look)
    return found


def selected_row(values: ast.Values) -> ast.Select | None:
    """Return a single row of VALUES with set-returning calls as a SELECT, otherwise None."""
    calls = (node for node in ast.nodes_of(values.rows[:1]) if isinstance(node, ast.FunctionCall))
    if (
        len(values.rows) > 1
        or values.more is not None
        or not any(is_table_function(call.name[-1]) for call in calls)
    ):
        return None
    targets = tuple(ast.Target(expr, None, values.at) for expr in values.rows[0])
    return ast.Select(None, targets, (), None, (), None, values.at)


def refused_in(where: str, at: int) -> FeatureNotSupported:
    """Return the error for a set-returning function where none is allowed."""
    return FeatureNotSupported(
        f"set-returning functions are not allowed in {where}",
        hint=AS_ITEM,
        position=at + 1,
    )


# --- rows of calls -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """A relation joined with rows of functions: the columns of the functions, and row numbers."""

    relation: Relation
    values: tuple[Scalar, ...]
    number: Column


def flat_map(input: Relation, found: ResolvedTable, args: tuple[Scalar, ...]) -> Rows:
    """Return `input` joined with the rows of a function."""
    width = len(columns_of(input))
    relation = FlatMap(input, found.key, args, (found.element, ColumnType(INT8, False)))
    element = Column(width, found.element.type, found.element.nullable)
    return Rows(relation, _outputs(found, args, element), Column(width + 1, INT8, False))


def _outputs(found: ResolvedTable, args: tuple[Scalar, ...], element: Scalar) -> tuple[Scalar, ...]:
    """Return the columns of a function's row from its arguments and the element of its array."""
    values = (*args, element)

    def filled(node: Scalar, depth: int) -> Scalar | None:
        return values[node.index] if isinstance(node, Column) and depth == 0 else None

    return tuple(map_scalar(output, filled) for output in found.outputs)


def _refuse_modifiers(call: ast.Expression) -> None:
    """Raise for what only aggregates and window functions take, in a call in FROM."""
    if not isinstance(call, ast.FunctionCall):
        return
    name = call.name[-1]
    if call.distinct:
        raise WrongObjectType(
            f"DISTINCT specified, but {name} is not an aggregate function", position=call.at + 1
        )
    for word, given in (("FILTER", call.filter is not None), ("OVER", call.over is not None)):
        if given:
            raise SyntaxError_(f'syntax error at or near "{word}"', position=call.at + 1)


def as_records(found: ResolvedTable) -> ResolvedTable:
    """Return a function of several columns as one of records; NULL beyond its last row."""
    row = make_record(found.outputs, record_of(found.names, tuple(map(type_of, found.outputs))))
    element = Column(len(found.arg_types), found.element.type)
    ended = Call("is_null", (element,), BOOL)
    type = type_of(row)
    value = Case(((ended, Literal(None, type)),), row, type)
    return replace(found, names=found.names[:1] or ("row",), outputs=(value,))


def one_row(scalar: Scalar, name: str) -> tuple[ResolvedTable, tuple[Scalar, ...]]:
    """Return a scalar as a function with one row, the element of an array of one."""
    type = type_of(scalar)
    found = ResolvedTable(
        "array", (type,), array_of(type), ColumnType(type), (name,), (Column(1, type),)
    )
    return found, (scalar,)


def in_step(input: Relation, calls: Sequence[tuple[ResolvedTable, tuple[Scalar, ...]]]) -> Rows:
    """Return `input` joined with the rows of several functions, NULL where one has ended."""
    width, count = len(columns_of(input)), len(calls)
    arrays = tuple(Call(found.key, args, found.result) for found, args in calls)
    elements = tuple(ColumnType(found.element.type) for found, _ in calls)
    relation = FlatMap(input, IN_STEP, arrays, (*elements, ColumnType(INT8, False)))
    outputs = tuple(
        output
        for place, (found, args) in enumerate(calls)
        for output in _outputs(found, args, Column(width + place, found.element.type))
    )
    return Rows(relation, outputs, Column(width + count, INT8, False))


def each_array(call: ast.Expression) -> Sequence[ast.Expression]:
    """Return unnest(a, b) as unnest(a), unnest(b), and any other function as it is."""
    _refuse_modifiers(call)
    if isinstance(call, ast.FunctionCall) and call.name == ("unnest",) and len(call.args) > 1:
        return [msgspec.structs.replace(call, args=(arg,)) for arg in call.args]
    return [call]
