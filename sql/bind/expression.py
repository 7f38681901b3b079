"""Bind expressions: convert syntax to typed scalars over the row of a scope.

This corresponds to PostgreSQL's parse analysis: names become columns, operators and functions are
resolved by the types of their operands, operands are coerced, and each error has a position. A
literal or NULL keeps the unknown type until its context requires one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never
from typing import cast as cast_

from foreshore.errors import (
    AmbiguousColumn,
    DatatypeMismatch,
    FeatureNotSupported,
    GroupingError,
    SyntaxError_,
    TooManyArguments,
    UndefinedColumn,
    UndefinedFunction,
    UndefinedParameter,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import NO_LITERAL, resolve, select_common_type
from foreshore.expr.ir import FALSE, TRUE, And, Call, Case, Column, Literal, Or, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.aggregates import Aggregates
from foreshore.sql.bind.coerce import (
    cast,
    coerce,
    common_type,
    is_unknown,
    number,
    to_common,
    to_known,
)
from foreshore.sql.bind.grouping_sets import GroupingRef
from foreshore.sql.bind.long_lists import LONG_LIST, in_long_list, over_array
from foreshore.sql.bind.row_values import (
    RowValue,
    compare_rows,
    conjunction,
    disjunction,
    distinct_rows,
    row_of_table,
)
from foreshore.sql.bind.scope import Scope, Table, resolve_column, resolve_table
from foreshore.sql.bind.sets import AS_ITEM, SetCall, SetCalls, refused_in
from foreshore.sql.bind.type_names import domain_of_name, type_of_name
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.lexer import tokenize
from foreshore.sql.planning import Planning, located
from foreshore.types import (
    BOOL,
    OID,
    TEXT,
    UNKNOWN,
    SqlType,
)

if TYPE_CHECKING:
    from foreshore.expr.functions.registry import ResolvedTable
    from foreshore.sql.bind.windows import Windows


@dataclass
class Clause:
    """The clause that contains an expression, and what is allowed there."""

    name: str  # as named in errors: "aggregate functions are not allowed in WHERE"
    aggregates: Aggregates | None = None  # None: not allowed
    nested: bool = False  # within the arguments of an aggregate
    sets: SetCalls | None = None
    windows: "Windows | None" = None  # None: window functions are not allowed
    nested_window: bool = False  # within the arguments of a window function
    default: bool = False  # whether DEFAULT is allowed
    merge_action: Column | None = None  # the column that merge_action() returns

    def refuse_aggregate(self, at: int) -> GroupingError:
        """Return the error for an aggregate where none is allowed."""
        if self.nested:
            return GroupingError("aggregate function calls cannot be nested", position=at + 1)
        return GroupingError(f"aggregate functions are not allowed in {self.name}", position=at + 1)


@dataclass
class ExpressionBinder:
    """Bind expressions of one clause over `scope`."""

    planning: Planning
    scope: Scope
    clause: Clause

    # --- entry points

    def bind(self, expr: ast.Expression) -> Scalar:
        """Return the scalar of `expr`."""
        value = self.bind_value(expr)
        if isinstance(value, RowValue):
            raise value.refused()
        return value

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
        match expr:
            case ast.ColumnRef():
                return self._column(expr)
            case ast.Number(text=text):
                return number(text)
            case ast.String(value=value):
                return Literal(value, UNKNOWN)
            case ast.Null():
                return Literal(None, UNKNOWN)
            case ast.Boolean(value=truth):
                return TRUE if truth else FALSE
            case ast.Operation(operator=operator, left=left, right=right, at=at):
                return self._operation(operator, left, right, at)
            case ast.Connective(kind=kind, args=args):
                scalars = tuple(self.boolean(arg, kind.upper()) for arg in args)
                return And(scalars) if kind == "and" else Or(scalars)
            case ast.FunctionCall():
                from foreshore.sql.bind.call import bind_call

                return bind_call(self, expr)
            case ast.CastTo():
                return self._cast(expr)
            case ast.ParameterRef(number=index, at=at):
                return self._parameter(index, at)
            case ast.Not(arg=arg):
                return Call("not", (self.boolean(arg, "NOT"),), BOOL)
            case ast.Is():
                return self._is(expr)
            case ast.IsDistinct():
                return self._is_distinct(expr)
            case ast.Like():
                return self._like(expr)
            case ast.Between():
                return self._between(expr)
            case ast.InList():
                return self._in_list(expr)
            case ast.InQuery() | ast.Quantified() | ast.Subquery():
                from foreshore.sql.bind.subquery import bind_subquery

                return bind_subquery(self, expr)
            case ast.CaseWhen():
                return self._case(expr)
            case ast.Special():
                return self._special(expr)
            case ast.SqlValue():
                from foreshore.sql.bind.call import bind_sql_value

                return bind_sql_value(self, expr)
            case ast.Row(items=items, at=at):
                bound = tuple(self.bind(item) for item in items)
                return RowValue(bound, tuple(map(at_of, items)), at)
            case ast.ArrayOf():
                from foreshore.sql.bind.arrays import bind_array

                return bind_array(self, expr, None)
            case ast.Subscript():
                from foreshore.sql.bind.arrays import bind_subscript

                return bind_subscript(self, expr)
            case ast.Collate():
                return self._collate(expr)
            case ast.Field(arg=arg, name=name, at=at):
                return self._field(arg, name, at)
            case ast.Bits(at=at):
                raise FeatureNotSupported("bit strings are not supported", position=at + 1)
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

    # --- names

    def _column(self, expr: ast.ColumnRef) -> "Scalar | RowValue":
        parts = expr.parts
        if len(parts) > 3:
            if parts[0] != self.planning.catalog.database and not self.planning.defined:
                raise FeatureNotSupported(
                    f"cross-database references are not implemented: {'.'.join(parts)}",
                    position=expr.at + 1,
                )
            parts = parts[1:]
        try:
            found = resolve_column(self.scope, parts, expr.at)
            if len(parts) > 2:
                resolve_qualifier(self.planning, self.scope, expr.parts[:-1], expr.at)
            return found
        except UndefinedColumn:
            if parts[-1] == "tableoid":
                return self._tableoid(parts[:-1], expr.at)
            if len(parts) > 1:
                raise
            try:
                table = resolve_table(self.scope, parts, expr.at)
            except (UndefinedTable, AmbiguousColumn):
                pass
            else:
                return row_of_table(*table, expr.at)
            raise

    def _tableoid(self, qualifier: tuple[str, ...], at: int) -> Scalar:
        """Return the oid of the table that a row is of."""
        if qualifier:
            table = resolve_table(self.scope, qualifier, at)[0]
        else:
            tables = [table for table in self.scope.tables if table.oid is not None]
            if len(tables) > 1:
                raise AmbiguousColumn('column reference "tableoid" is ambiguous', position=at + 1)
            if not tables:
                raise UndefinedColumn('column "tableoid" does not exist', position=at + 1)
            table = tables[0]
        if table.oid is None:
            shown = ".".join((*qualifier[-1:], "tableoid"))
            raise UndefinedColumn(f"column {shown} does not exist", position=at + 1)
        if table.outer:
            raise FeatureNotSupported(
                "tableoid of the nullable side of an outer join is not supported",
                position=at + 1,
            )
        return Literal(table.oid, OID)

    def _field(self, arg: ast.Expression, name: str | None, at: int) -> Scalar:
        if isinstance(arg, ast.ColumnRef) and name is not None:
            return self.bind(ast.ColumnRef((*arg.parts, name), arg.at))
        scalar = self.bind(arg)
        raise WrongObjectType(
            f"column notation .{name or '*'} applied to type {type_of(scalar)}, "
            "which is not a composite type",
            position=at_of(arg) + 1,
        )

    def _parameter(self, index: int, at: int) -> Scalar:
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
        types = tuple(map(type_of, args))
        literals = tuple(arg.value if isinstance(arg, Literal) else NO_LITERAL for arg in args)
        with located(at):
            found = resolve(name, types, literals)
        places = offsets or (at,) * len(args)
        call = Call(found.key, self.coerced(args, found.arg_types, places), found.result)
        return self.planning.zone.applied(call)

    def coerced(
        self, args: Sequence[Scalar], targets: Sequence[SqlType], offsets: Sequence[int]
    ) -> tuple[Scalar, ...]:
        """Return `args` coerced to the types of a resolved function."""
        result = []
        for arg, target, at in zip(args, targets, offsets, strict=True):
            scalar = coerce(self.planning, arg, target, "implicit", at)
            if scalar is None:
                scalar = coerce(self.planning, arg, target, "explicit", at)
            assert scalar is not None, (arg, target)
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
        assert not isinstance(value, RowValue)
        return value

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
        if isinstance(left, RowValue) or isinstance(right, RowValue):
            return compare_rows(self, operator, left, right, at)
        return self.call(operator, (left, right), at, (left_at, right_at))

    def _is_distinct(self, expr: ast.IsDistinct) -> Scalar:
        left, right = self.bind_value(expr.left), self.bind_value(expr.right)
        name = "is not distinct from" if expr.negated else "is distinct from"
        if isinstance(left, RowValue) or isinstance(right, RowValue):
            return distinct_rows(self, name, left, right, expr.at)
        return self.call(name, (left, right), expr.at, (at_of(expr.left), at_of(expr.right)))

    def _is(self, expr: ast.Is) -> Scalar:
        if expr.what != "null":
            shown = ("IS NOT " if expr.negated else "IS ") + expr.what.upper()
            arg = self.boolean(expr.arg, shown)
            return Call(f"is_{'not_' if expr.negated else ''}{expr.what}", (arg,), BOOL)
        key = "is_not_null" if expr.negated else "is_null"
        value = self.bind_value(expr.arg)
        if isinstance(value, RowValue):
            return conjunction([self._null_test(key, item) for item in value.items])
        return self._null_test(key, value)

    def _null_test(self, key: str, scalar: Scalar) -> Scalar:
        if is_unknown(scalar):
            known = coerce(self.planning, scalar, TEXT, "implicit", 0)
            assert known is not None
            scalar = known
        return Call(key, (scalar,), BOOL)

    def _like(self, expr: ast.Like) -> Scalar:
        left, pattern = self.bind(expr.left), self.bind(expr.right)
        left_at, right_at = at_of(expr.left), at_of(expr.right)
        if expr.kind == "similar":
            args = [pattern] if expr.escape is None else [pattern, self.bind(expr.escape)]
            pattern = self.call("similar_to_escape", args, expr.at)
            operator = "~"
        else:
            if expr.escape is not None:
                pattern = self.call("like_escape", (pattern, self.bind(expr.escape)), expr.at)
            operator = "~~*" if expr.kind == "ilike" else "~~"
        if expr.negated:
            operator = "!" + operator
        return self.call(operator, (left, pattern), expr.at, (left_at, right_at))

    def _between(self, expr: ast.Between) -> Scalar:
        arg, low, high = (self.bind(e) for e in (expr.arg, expr.low, expr.high))
        at, offsets = expr.at, (at_of(expr.arg), at_of(expr.low))
        high_offsets = (offsets[0], at_of(expr.high))

        def inside(low: Scalar, high: Scalar) -> Scalar:
            if expr.negated:
                return Or(
                    (
                        self.call("<", (arg, low), at, offsets),
                        self.call(">", (arg, high), at, offsets),
                    )
                )
            return And(
                (
                    self.call(">=", (arg, low), at, offsets),
                    self.call("<=", (arg, high), at, high_offsets),
                )
            )

        if not expr.symmetric:
            return inside(low, high)
        both = (inside(low, high), inside(high, low))
        return And(both) if expr.negated else Or(both)

    def _in_list(self, expr: ast.InList) -> Scalar:
        left = self.bind_value(expr.arg)
        left_at = at_of(expr.arg)
        operator = "<>" if expr.negated else "="
        if expr.more and (long := in_long_list(self, expr, left, expr.more)) is not None:
            return long
        values = [(self.bind_value(item), at_of(item)) for item in expr.whole]
        if not isinstance(left, RowValue):
            # All items take one common type if there is one, as in `x IN (1, 2.5)`.
            scalars = [value for value, _ in values if not isinstance(value, RowValue)]
            if len(scalars) == len(values) and not any(map(is_unknown, scalars)):
                common = select_common_type([type_of(left), *map(type_of, scalars)])
                if common is not None and type_of(left) != UNKNOWN:
                    values = [
                        (to_common(self.planning, v, common, "IN", at), at)
                        for v, (_, at) in zip(scalars, values, strict=True)
                    ]
        if len(values) > LONG_LIST and not isinstance(left, RowValue):
            first = self.operate(operator, left, values[0][0], expr.at, left_at, values[0][1])
            whole = over_array(first, [value for value, _ in values])
            if whole is not None:
                return whole
        tests = [self.operate(operator, left, value, expr.at, left_at, at) for value, at in values]
        if len(tests) > LONG_LIST:
            compared = [test.args[1] for test in tests if isinstance(test, Call) and test.args[1:]]
            whole = over_array(tests[0], compared, tests)
            if whole is not None:
                return whole
        return conjunction(tests) if expr.negated else disjunction(tests)

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
        if isinstance(expr.arg, ast.ArrayOf) and target.element is not None:
            from foreshore.sql.bind.arrays import bind_array

            return cast(self.planning, bind_array(self, expr.arg, target.element), target, expr.at)
        scalar = self.bind(expr.arg)
        literal = isinstance(expr.arg, ast.String)
        value = cast(self.planning, scalar, target, expr.arg.at if literal else expr.at)
        domain = domain_of_name(expr.type, self.planning)
        if domain is None:
            return value
        from foreshore.sql.bind.domain_values import checked

        return checked(self.planning, value, domain, expr.at)

    def _collate(self, expr: ast.Collate) -> Scalar:
        scalar = self.bind(expr.arg)
        if is_unknown(scalar):
            text = coerce(self.planning, scalar, TEXT, "implicit", expr.at)
            assert text is not None
            scalar = text
        if type_of(scalar).name not in ("text", "varchar", "bpchar", "name"):
            raise DatatypeMismatch(
                f"collations are not supported by type {type_of(scalar)}", position=expr.at + 1
            )
        name = expr.collation[-1]
        if name not in ("default", "C", "POSIX", "ucs_basic", "C.UTF-8", "C.utf8"):
            raise FeatureNotSupported(f'collation "{name}" is not supported', position=expr.at + 1)
        return scalar

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
            raise FeatureNotSupported(
                "a function of several columns in a select list is not supported", position=at + 1
            )
        return self.clause.sets.add(SetCall(found, args), at)

    def _refuse_sets_since(self, count: int, where: str) -> None:
        """Raise an error if set-returning calls were added beyond `count`; `where` allows none."""
        sets = self.clause.sets
        if sets is not None and len(sets.places) > count:
            raise refused_in(where, sets.places[-1])

    @property
    def _set_count(self) -> int:
        return 0 if self.clause.sets is None else len(self.clause.sets.places)


def resolve_qualifier(
    planning: Planning, scope: Scope, qualifier: tuple[str, ...], at: int
) -> tuple[Table, int, Scope]:
    """Return the table that `qualifier` names, the number of levels out, and its scope.

    In kept text the schema is omitted, because it may be renamed, except in rare cases where it
    distinguishes tables.
    """
    found = resolve_table(scope, qualifier, at)
    is_kept = planning.keeps_text and not planning.inlining
    if is_kept and len(qualifier) > 1 and resolve_table(scope, qualifier[-1:], at)[0] is found[0]:
        tokens, _ = tokenize(planning.text)
        first = next(place for place, token in enumerate(tokens) if token.start == at)
        table = tokens[first + 2 * (len(qualifier) - 1)]
        planning.qualified.append((at, table.end, quote_identifier(table.value)))
    return found


def at_of(expr: ast.Expression) -> int:
    """Return the position that PostgreSQL reports for an expression: its leftmost token."""
    while True:
        match expr:
            case ast.Operation(left=left) if left is not None:
                expr = left
            case ast.Is(arg=arg) | ast.InList(arg=arg) | ast.InQuery(arg=arg):
                expr = arg
            case ast.Between(arg=arg) | ast.Subscript(arg=arg) | ast.Collate(arg=arg):
                expr = arg
            case ast.Like(left=left) | ast.IsDistinct(left=left) | ast.Quantified(left=left):
                expr = left
            case ast.Connective(args=args):
                expr = args[0]
            case ast.CastTo(arg=arg, at=at) if at_plain(arg) < at:
                expr = arg
            case _:
                return expr.at


def at_plain(expr: ast.Expression) -> int:
    """Return the offset of the expression's own token."""
    return expr.at


def undefined_function(name: str, types: Sequence[SqlType], at: int) -> UndefinedFunction:
    """Return PostgreSQL's error for a missing function."""
    return UndefinedFunction(
        f"function {name}({', '.join(map(str, types))}) does not exist",
        hint="No function matches the given name and argument types. "
        "You might need to add explicit type casts.",
        position=at + 1,
    )
