"""Bind expressions: convert syntax to typed scalars over the row of a scope.

This corresponds to PostgreSQL's parse analysis: names become columns, operators and functions are
resolved by the types of their operands, operands are coerced, and each error has a position. A
literal or NULL keeps the unknown type until its context requires one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never
from typing import cast as cast_

from foreshore.array_text import ShapeNotSupported
from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    GroupingError,
    SyntaxError_,
    TooManyArguments,
    UndefinedColumn,
    UndefinedParameter,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.comparison import OPERATORS
from foreshore.expr.functions.registry import NO_LITERAL, resolve
from foreshore.expr.ir import FALSE, TRUE, And, Call, Case, Literal, Parameter, Scalar
from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql import ast
from foreshore.sql.bind.arrays import bind_array, bind_subscript
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.block_ranges import bind_block_between, bind_block_comparison
from foreshore.sql.bind.call import bind_call, bind_sql_value
from foreshore.sql.bind.coerce import (
    are_different_times,
    cast,
    coerce,
    common_type,
    has_gained_shape,
    is_unknown,
    number,
    to_common,
    to_compare,
    to_known,
)
from foreshore.sql.bind.columns import bind_column, resolve_qualifier
from foreshore.sql.bind.constant_numbers import computed_number
from foreshore.sql.bind.containers import bind_container
from foreshore.sql.bind.domain_values import checked
from foreshore.sql.bind.grouping_sets import GroupingRef
from foreshore.sql.bind.long_lists import any_of
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.predicates import (
    bind_between,
    bind_in_list,
    bind_is,
    bind_is_distinct,
    bind_like,
)
from foreshore.sql.bind.record_columns import columns_of_record
from foreshore.sql.bind.records import as_scalar, column_named, expanded, matched
from foreshore.sql.bind.row_values import RowValue, are_built, compare_rows, row_of_table
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.sets import AS_ITEM, SetCall, as_records, refused_in
from foreshore.sql.bind.subquery import bind_subquery
from foreshore.sql.bind.type_names import domain_of_name, type_of_name
from foreshore.sql.bind.widths import check_row
from foreshore.sql.parse.collations import BYTEWISE, check_collatable, check_collation
from foreshore.text import parse_text
from foreshore.types import BIT, BOOL, NUMBER, NUMERIC, TEXT, UNKNOWN, SqlType, element_of

if TYPE_CHECKING:
    from foreshore.expr.functions.registry import ResolvedTable


@dataclass
class ExpressionBinder:
    """Bind expressions of one clause over `scope`."""

    planning: Planning
    scope: Scope
    clause: Clause

    # --- entry points

    def over(self, clause: Clause) -> "ExpressionBinder":
        """Return a binder of another clause over the same scope."""
        return ExpressionBinder(self.planning, self.scope, clause)

    def bind(self, expr: ast.Expression) -> Scalar:
        """Return the scalar of `expr`."""
        return as_scalar(self, self.bind_value(expr))

    def condition(self, expr: ast.Expression) -> Scalar:
        """Return `expr` as a condition of WHERE, HAVING, ON, ..."""
        return self.boolean(expr, self.clause.name)

    def boolean(self, expr: ast.Expression, what: str) -> Scalar:
        """Return `expr` as a boolean; `what` names the operator or clause in errors."""
        scalar = self.bind(expr)
        result = coerce(self.planning, scalar, BOOL, "implicit", at_of(expr))
        if result is None:
            raise DatatypeMismatch(
                f"argument of {what} must be type boolean, not type {type_of(scalar)}",
                position=at_of(expr) + 1,
            )
        return result

    def bind_value(self, expr: ast.Expression) -> "Scalar | RowValue":
        """Return the value of `expr`, which may be a row."""
        if REQUESTS:
            safepoint()
        match expr:
            case ast.ColumnRef():
                return bind_column(self, expr)
            case ast.Number(text=text):
                return number(text)
            case ast.String(value=value):
                return Literal(value, UNKNOWN)
            case ast.Null():
                return Literal(None, UNKNOWN)
            case ast.Boolean(value=truth):
                return TRUE if truth else FALSE
            case ast.Operation(operator=operator, left=left, right=right, at=at):
                if (is_known := bind_block_comparison(self, expr)) is not None:
                    return is_known
                return self._operation(operator, left, right, at)
            case ast.Connective(kind=kind, args=args):
                scalars = tuple(self.boolean(arg, kind.upper()) for arg in args)
                return And(scalars) if kind == "and" else any_of(scalars)
            case ast.FunctionCall():
                return bind_call(self, expr)
            case ast.CastTo():
                return self._cast(expr)
            case ast.ParameterRef(number=index, at=at):
                return self._parameter(index, at)
            case ast.Not(arg=arg):
                return Call("not", (self.boolean(arg, "NOT"),), BOOL)
            case ast.Is():
                return bind_is(self, expr)
            case ast.IsDistinct():
                return bind_is_distinct(self, expr)
            case ast.Like():
                return bind_like(self, expr)
            case ast.Between():
                is_known = bind_block_between(self, expr)
                return bind_between(self, expr) if is_known is None else is_known
            case ast.InList():
                return bind_in_list(self, expr)
            case ast.InQuery() | ast.Quantified() | ast.Subquery():
                return bind_subquery(self, expr)
            case ast.CaseWhen():
                return self._case(expr)
            case ast.Special():
                return self._special(expr)
            case ast.SqlValue():
                return bind_sql_value(self, expr)
            case ast.Row(items=items, at=at):
                pairs = [pair for item in items for pair in self._items_of_row(item)]
                check_row(len(pairs), at, defined=self.planning.defined)
                return RowValue(tuple(s for s, _ in pairs), tuple(at for _, at in pairs), at)
            case ast.ArrayOf():
                if expr.kind != "array":
                    return bind_container(self, expr, None)
                return bind_array(self, expr, None)
            case ast.Subscript():
                return bind_subscript(self, expr)
            case ast.Collate():
                return self._collate(expr)
            case ast.Field(arg=arg, name=name, at=at):
                return self._field(arg, name, at)
            case ast.Bits(text=text, at=at):
                with located(at):
                    return Literal(parse_text(text, BIT), BIT)
            case ast.Star(qualifier=parts, at=at) if parts:
                table = resolve_qualifier(self.planning, self.scope, parts, at)
                return row_of_table(*table, at)
            case ast.Star(at=at):
                raise SyntaxError_('syntax error at or near "*"', position=at + 1)
            case ast.GroupingCall(args=args, at=at):
                return self._grouping(args, at)
            case ast.Default(at=at):
                raise SyntaxError_("DEFAULT is not allowed in this context", position=at + 1)
            case _:
                assert_never(expr)

    def _items_of_row(self, item: ast.Expression) -> list[tuple[Scalar, int]]:
        """Return the values, with offsets, that an item of ROW(...) stands for."""
        if isinstance(item, ast.Star) and item.qualifier:
            whole = self.bind_value(item)
            if isinstance(whole, RowValue):
                return [(column, item.at) for column in whole.items]
            if type_of(whole).name == "record":
                return [(column, item.at) for column in columns_of_record(whole)]
            return [(whole, item.at)]
        if isinstance(item, ast.Field) and item.name is None:
            return [(column, item.at) for column, _ in expanded(self, item)]
        return [(self.bind(item), at_of(item))]

    # --- names

    def _field(self, arg: ast.Expression, name: str | None, at: int) -> Scalar:
        value = self.bind_value(arg)
        if name is None:
            raise SyntaxError_(
                'row expansion via "*" is not supported here', position=at_of(arg) + 1
            )
        if isinstance(arg, ast.ColumnRef) and isinstance(value, RowValue):
            return self.bind(ast.ColumnRef((*arg.parts, name), arg.at))
        return column_named(value, name, at_of(arg))

    def _parameter(self, index: int, at: int) -> Scalar:
        if self.planning.in_function:
            try:
                return as_scalar(self, bind_column(self, ast.ColumnRef((f"${index}",), at)))
            except UndefinedColumn:
                raise UndefinedParameter(
                    f"there is no parameter ${index}", position=at + 1
                ) from None
        if self.planning.in_view:
            raise UndefinedParameter(f"there is no parameter ${index}", position=at + 1)
        return self.planning.parameters.use(index, at)

    # --- calls

    def _grouping(self, args: tuple[ast.Expression, ...], at: int) -> Scalar:
        """Return GROUPING(...), which is resolved when the groups are known."""
        aggregates = self.clause.aggregates
        if aggregates is None:
            raise GroupingError(
                f"grouping operations are not allowed in {self.clause.name}", position=at + 1
            )
        if len(args) > 31:
            raise TooManyArguments("GROUPING must have fewer than 32 arguments", position=at + 1)
        aggregates.has_grouping = True
        bound = tuple(to_known(self.planning, self.bind(arg), at_of(arg)) for arg in args)
        return cast_("Scalar", GroupingRef(aggregates.number, bound, at))

    def call(
        self, name: str, args: Sequence[Scalar], at: int, offsets: Sequence[int] = ()
    ) -> Scalar:
        """Return the operator or function `name` over `args`, resolved and coerced."""
        args = self._beside_planned(args)
        types = tuple(map(type_of, args))
        literals = tuple(arg.value if isinstance(arg, Literal) else NO_LITERAL for arg in args)
        with located(at):
            found = resolve(name, types, literals)
        places = offsets or (at,) * len(args)
        known = computed_number(self.planning, name, args, found, at)
        if known is not None:
            return known
        coerced = self.coerced(args, found.arg_types, places, may_gain_shape=True)
        if any(map(has_gained_shape, coerced, found.arg_types)):
            return self.call(name, coerced, at, offsets)
        if found.key in OPERATORS or found.key in ("is_distinct", "is_not_distinct"):
            coerced = tuple(map(to_compare, args, coerced))
        call = Call(found.key, coerced, found.result)
        return self.planning.zone.applied(call)

    def _beside_planned(self, args: Sequence[Scalar]) -> Sequence[Scalar]:
        """Return `args`, of which parameters have a planned scale beside numerics with one.

        So a look-up by a key does not depend on the types that a client declares.
        """
        if not any(type_of(arg).name == "numeric" for arg in args):
            return args
        return [
            Call("cast(number,numeric)", (arg,), NUMERIC)
            if isinstance(arg, Parameter) and arg.type == NUMBER
            else arg
            for arg in args
        ]

    def coerced(
        self,
        args: Sequence[Scalar],
        targets: Sequence[SqlType],
        offsets: Sequence[int],
        *,
        may_gain_shape: bool = False,
    ) -> tuple[Scalar, ...]:
        """Return `args` coerced to the types of a resolved function.

        A text for a plain array that has a shape is refused, or if it `may_gain_shape` becomes an
        array of any shape.
        """
        result = []
        for arg, target, at in zip(args, targets, offsets, strict=True):
            scalar = coerce(self.planning, arg, target, "implicit", at)
            if scalar is None and type_of(arg).name == "shaped":  # of one dimension
                scalar = coerce(self.planning, arg, target, "assignment", at)
            if scalar is None:
                scalar = coerce(self.planning, arg, target, "explicit", at)
            assert scalar is not None, (arg, target)
            if has_gained_shape(scalar, target) and not may_gain_shape:
                with located(at):
                    raise ShapeNotSupported
            result.append(scalar)
        return tuple(result)

    def _operation(
        self, operator: str, left: ast.Expression | None, right: ast.Expression, at: int
    ) -> Scalar:
        if left is None:
            return self.call(operator, (self.bind(right),), at, (at_of(right),))
        # Process a chain of operators in a loop, as it may be deeper than the stack.
        chain = [(operator, right, at)]
        while isinstance(left, ast.Operation) and left.left is not None:
            chain.append((left.operator, left.right, left.at))
            left = left.left
        first_at = at_of(left)
        value = self.bind_value(left)
        for operator, operand, at in reversed(chain):
            other = self.bind_value(operand)
            value = self.operate(operator, value, other, at, first_at, at_of(operand))
        return as_scalar(self, value)

    def operate(
        self,
        operator: str,
        left: "Scalar | RowValue",
        right: "Scalar | RowValue",
        at: int,
        left_at: int,
        right_at: int,
    ) -> Scalar:
        """Return `left operator right` of scalars or rows."""
        if are_built(left, right):
            return compare_rows(self, operator, left, right, at)
        left, right = matched(self, left, right, at)
        return self.call(operator, (left, right), at, (left_at, right_at))

    # --- choices

    def _case(self, expr: ast.CaseWhen) -> Scalar:
        sets = self._set_count
        conditions: list[Scalar] = []
        operand = None if expr.operand is None else self.bind(expr.operand)
        if operand is not None and is_unknown(operand):
            operand = coerce(self.planning, operand, TEXT, "implicit", expr.at)
        results = [self.bind(result) for _, result in expr.branches]
        for condition, _ in expr.branches:
            if operand is None:
                conditions.append(self.boolean(condition, "CASE/WHEN"))
            else:
                test = self.bind(condition)
                conditions.append(self.call("=", (operand, test), at_of(condition)))
        otherwise: Scalar = Literal(None, UNKNOWN)
        otherwise_at = expr.at
        if expr.otherwise is not None:
            otherwise, otherwise_at = self.bind(expr.otherwise), at_of(expr.otherwise)
        offsets = [otherwise_at, *(at_of(result) for _, result in expr.branches)]
        self._refuse_sets_since(sets, "CASE")
        scalars = [otherwise, *results]
        common = common_type(scalars, "CASE", offsets)
        first, *rest = (
            to_common(self.planning, scalar, common, "CASE", at)
            for scalar, at in zip(scalars, offsets, strict=True)
        )
        return Case(tuple(zip(conditions, rest, strict=True)), first, common)

    def _special(self, expr: ast.Special) -> Scalar:
        sets = self._set_count
        args = [self.bind(arg) for arg in expr.args]
        offsets = [at_of(arg) for arg in expr.args]
        if expr.kind == "coalesce":
            self._refuse_sets_since(sets, "COALESCE")
        if expr.kind == "nullif" and are_different_times(*args):  # it compares, and converts none
            null = Literal(None, type_of(args[0]))
            same = self.call("=", args, expr.at, offsets)
            return Case(((same, null),), args[0], null.type)
        if expr.kind == "nullif":
            return self.call("nullif", args, expr.at, offsets)
        common = common_type(args, expr.kind.upper(), offsets)
        scalars = tuple(
            to_common(self.planning, arg, common, expr.kind.upper(), at)
            for arg, at in zip(args, offsets, strict=True)
        )
        return Call(expr.kind, scalars, common)

    # --- casts and arrays

    def _cast(self, expr: ast.CastTo) -> Scalar:
        target = type_of_name(expr.type, self.planning)
        if isinstance(expr.arg, ast.ArrayOf) and expr.arg.kind != "array":
            value = bind_container(self, expr.arg, target)
            return cast(self.planning, value, target, expr.at)
        element = element_of(target)
        if isinstance(expr.arg, ast.ArrayOf) and element is not None:
            return cast(self.planning, bind_array(self, expr.arg, element), target, expr.at)
        return self.cast_value(expr, self.bind(expr.arg))

    def cast_value(self, expr: ast.CastTo, scalar: Scalar) -> Scalar:
        """Return a value in the place of what is cast, cast to the type or domain."""
        target = type_of_name(expr.type, self.planning)
        literal = isinstance(expr.arg, ast.String)
        value = cast(self.planning, scalar, target, expr.arg.at if literal else expr.at)
        domain = domain_of_name(expr.type, self.planning)
        if domain is None:
            return value
        return checked(self.planning, value, domain, expr.at)

    def _collate(self, expr: ast.Collate) -> Scalar:
        scalar = self.bind(expr.arg)
        if is_unknown(scalar):
            text = coerce(self.planning, scalar, TEXT, "implicit", expr.at)
            assert text is not None
            scalar = text
        check_collatable(type_of(scalar), expr.at)
        name = expr.collation[-1]
        check_collation(name, expr.at)
        if name not in BYTEWISE:
            raise FeatureNotSupported(f'collation "{name}" is not supported', position=expr.at + 1)
        return scalar

    def cast(self, scalar: Scalar, target: SqlType, at: int) -> Scalar:
        """Return a value cast to `target`; raises an error if there is no such cast."""
        return cast(self.planning, scalar, target, at)

    # --- sets

    def add_set(self, found: "ResolvedTable", args: tuple[Scalar, ...], at: int) -> Scalar:
        """Return the reference to a set-returning call in a select list."""
        if self.clause.nested or self.clause.nested_window:
            kind = "window" if self.clause.nested_window else "aggregate"
            raise FeatureNotSupported(
                f"{kind} function calls cannot contain set-returning function calls",
                hint=AS_ITEM,
                position=at + 1,
            )
        if self.clause.sets is None:
            if self.clause.name == "functions in FROM":
                raise FeatureNotSupported(
                    "set-returning functions must appear at top level of FROM", position=at + 1
                )
            raise FeatureNotSupported(
                f"set-returning functions are not allowed in {self.clause.name}", position=at + 1
            )
        if len(found.outputs) != 1:
            found = as_records(found)
        return self.clause.sets.add(SetCall(found, args), at)

    def _refuse_sets_since(self, count: int, where: str) -> None:
        """Raise an error if set-returning calls were added beyond `count`; `where` allows none."""
        sets = self.clause.sets
        if sets is not None and len(sets.places) > count:
            raise refused_in(where, sets.places[-1])

    @property
    def _set_count(self) -> int:
        return 0 if self.clause.sets is None else len(self.clause.sets.places)
