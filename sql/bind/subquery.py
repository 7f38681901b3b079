"""Bind subqueries in expressions: scalar, EXISTS, ARRAY, IN and quantified comparisons.

    x IN (q)        AnySubquery(x = column, q)
    x <> ALL (q)    NOT AnySubquery(NOT (x <> column), q)

In the predicate, the subquery's columns are `Column`s, and `x`, which is outside, moves one level
in. An array on the right is treated in the same way unless its elements are written out.
"""

from typing import assert_never

from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    SyntaxError_,
    WrongObjectType,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.equality import is_plain
from foreshore.expr.functions.registry import resolve, resolve_table
from foreshore.expr.ir import (
    Aggregate,
    AnySubquery,
    Call,
    Case,
    Column,
    Exists,
    FlatMap,
    Join,
    Literal,
    OuterColumn,
    Project,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
)
from foreshore.expr.traversal import operands_of, walk_scalars, with_operands
from foreshore.shaped import EMPTY, stored_shaped
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.bound_query import plain_relation, relation_and_order
from foreshore.sql.bind.coerce import cast, coerce, is_unknown, to_compare
from foreshore.sql.bind.containers import of_array
from foreshore.sql.bind.planning import located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.records import as_scalar, built_row
from foreshore.sql.bind.row_values import RowValue, conjunction, disjunction
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.sql.optimize.once import changes, row_without_tables
from foreshore.sql.rewrite.scalars import push_down
from foreshore.types import (
    BOOL,
    TEXT,
    VECTORS,
    array_of,
    element_of,
    item_of,
    map_of,
    record_of,
    shaped_array,
)

SubqueryExpression = ast.InQuery | ast.Quantified | ast.Subquery


def bind_subquery(binder: Binder, expr: SubqueryExpression) -> Scalar:
    """Return the scalar of a subquery."""
    match expr:
        case ast.Subquery(kind=kind, query=query, at=at):
            match kind:
                case "exists":
                    return Exists(_relation(binder, query, locking=False))
                case "scalar":
                    return _scalar(binder, query, at)
                case "array":
                    return _array(binder, query, at)
                case "list":
                    return of_array(_array(binder, query, at))
                case "map":
                    return _map(binder, query, at)
                case _:
                    assert_never(kind)
        case ast.InQuery(arg=arg, query=query, negated=negated, at=at):
            left = built_row(arg, binder.bind_value(arg))
            test = _any(binder, "=", left, at_of(arg), query, at)
            return Call("not", (test,), BOOL) if negated else test
        case ast.Quantified():
            return _quantified(binder, expr)
        case _:
            assert_never(expr)


def check_no_subquery(scalar: Scalar, where: str, at: int) -> None:
    """Raise FeatureNotSupported if `scalar`, at offset `at`, contains a subquery.

    `where` names the place in errors: an expression evaluated by itself, without a relation.
    """
    if has_subquery(scalar):
        raise FeatureNotSupported(f"cannot use subquery in {where}", position=at + 1)


def _relation(binder: Binder, query: ast.Query, *, locking: bool = True) -> Relation:
    with binder.scope.seen_from(binder.clause), binder.planning.apart_from_locks():
        bound = binder.planning.binding.query(binder.planning, query, binder.scope, locking=locking)
    return plain_relation(bound)


def _scalar(binder: Binder, query: ast.Query, at: int) -> Scalar:
    relation = _relation(binder, query)
    columns = columns_of(relation)
    if len(columns) != 1:
        raise SyntaxError_("subquery must return only one column", position=at + 1)
    return ScalarSubquery(relation, columns[0].type)


def without_rows(scalar: Scalar) -> Scalar:
    """Return a scalar with the values of `(SELECT ...)` without tables in place of these."""
    if isinstance(scalar, ScalarSubquery):
        row = row_without_tables(scalar.relation)
        value = None if row is None else without_rows(row[0])
        if value is None or has_subquery(value) or any(map(changes, walk_scalars(value))):
            return scalar
        return _from_outside(value)
    operands = operands_of(scalar)
    return with_operands(scalar, tuple(map(without_rows, operands))) if operands else scalar


def _from_outside(scalar: Scalar) -> Scalar:
    """Return a scalar of a subquery as one of the row outside of it."""
    if isinstance(scalar, OuterColumn):
        level, index, type = scalar.level, scalar.index, scalar.type
        if level == 1:
            return Column(index, type, scalar.nullable)
        return OuterColumn(level - 1, index, type, scalar.nullable)
    operands = operands_of(scalar)
    return with_operands(scalar, tuple(map(_from_outside, operands))) if operands else scalar


def _array(binder: Binder, query: ast.Query, at: int) -> Scalar:
    with binder.scope.seen_from(binder.clause):
        bound = binder.planning.binding.query(binder.planning, query, binder.scope)
    if len(bound.project) != 1:
        raise SyntaxError_("subquery must return only one column", position=at + 1)
    relation, order_by = relation_and_order(bound)
    column = columns_of(relation)[bound.project[0]]
    value: Scalar = Column(bound.project[0], column.type, column.nullable)
    element = element_of(column.type)
    if element is not None:
        value = cast(binder.planning, value, shaped_array(element), at)
    type = array_of(type_of(value))
    order = order_by or bound.partial.keys
    gathered = Reduce(relation, (), (Aggregate("array_agg", (value,), type, order_by=order),))
    found: Scalar = ScalarSubquery(gathered, type)
    empty = Literal((), type)
    if element is not None:
        type = type_of(value)
        found, empty = (
            Call("shaped_agg(anyarray)", (found,), type),
            Literal(stored_shaped(EMPTY, type), type),
        )
    return Call("coalesce", (found, empty), type)


def _map(binder: Binder, query: ast.Query, at: int) -> Scalar:
    """Return MAP(query), whose rows are keys and values."""
    with binder.scope.seen_from(binder.clause):
        bound = binder.planning.binding.query(binder.planning, query, binder.scope)
    count = len(bound.project)
    if count != 2:
        raise SyntaxError_(
            f"expected map subquery to return 2 columns, got {count} columns", position=at + 1
        )
    relation, order_by = relation_and_order(bound)
    key, value = (
        Column(place, column.type, column.nullable)
        for place in bound.project
        for column in (columns_of(relation)[place],)
    )
    if key.type != TEXT:
        raise DatatypeMismatch(
            "cannot build map from subquery because first column is not of type text",
            position=at + 1,
        )
    pair = record_of(("key", "value"), (key.type, value.type))
    type, pairs = map_of(value.type), array_of(pair)
    row = Call("row(any)", (key, value), pair)
    order = order_by or bound.partial.keys
    gathered = Reduce(relation, (), (Aggregate("array_agg", (row,), pairs, order_by=order),))
    found = Call("coalesce", (ScalarSubquery(gathered, pairs), Literal((), pairs)), pairs)
    return Call("map_of_records(anyarray)", (found,), type)


def _any(
    binder: Binder,
    operator: str,
    left: "Scalar | RowValue",
    left_at: int,
    query: ast.Query,
    at: int,
    *,
    negated: bool = False,
) -> Scalar:
    """Return `left operator ANY (query)`; if `negated`, with the operator's negation."""
    relation = _relation(binder, query)
    columns = columns_of(relation)
    if isinstance(left, RowValue) and left.whole:
        left = as_scalar(binder, left)
    items = left.items if isinstance(left, RowValue) else (left,)
    if len(columns) < len(items):
        raise SyntaxError_("subquery has too few columns", position=at + 1)
    if len(columns) > len(items):
        raise SyntaxError_("subquery has too many columns", position=at + 1)
    rights = tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns))
    if isinstance(left, RowValue):
        pushed = RowValue(tuple(map(_inward, items)), left.offsets, left.at)
        rows = RowValue(rights, (at,) * len(rights), at)
        predicate = binder.operate(operator, pushed, rows, at, left_at, at)
    else:
        predicate = binder.operate(operator, _inward(items[0]), rights[0], at, left_at, at)
    _require_boolean(predicate, at)
    return AnySubquery(_not(predicate) if negated else predicate, relation)


def _inward(scalar: Scalar) -> Scalar:
    return scalar if is_unknown(scalar) else push_down(scalar)


def _not(scalar: Scalar) -> Scalar:
    return Call("not", (scalar,), BOOL)


def _require_boolean(predicate: Scalar, at: int) -> None:
    if type_of(predicate) != BOOL:
        raise WrongObjectType(
            "op ANY/ALL (array) requires operator to yield boolean", position=at + 1
        )


def _quantified(binder: Binder, expr: ast.Quantified) -> Scalar:
    left, left_at = binder.bind_value(expr.left), at_of(expr.left)
    all_ = expr.kind == "all"
    if isinstance(expr.right, ast.Query):
        left = built_row(expr.left, left)
        test = _any(binder, expr.operator, left, left_at, expr.right, expr.at, negated=all_)
        return _not(test) if all_ else test
    left = as_scalar(binder, left)
    if isinstance(expr.right, ast.ArrayOf) and _is_flat(expr.right):
        return _written_out(binder, expr, left, expr.right)
    array = _array_operand(binder, expr.right, left)
    if array is None:
        raise WrongObjectType(
            "op ANY/ALL (array) requires array on right side", position=expr.at + 1
        )
    if isinstance(array, Literal) and array.value is not None:
        element = type_of(array).element
        assert element is not None
        simple = _comparison(binder, expr, left, array) if is_plain(element) else None
        if simple is not None:
            return simple
        tests = [
            binder.operate(expr.operator, left, Literal(v, element), expr.at, left_at, expr.at)
            for v in array.value
        ]
        return conjunction(tests) if all_ else disjunction(tests)
    return _over_elements(binder, expr, left, array)


def _is_flat(array: ast.ArrayOf) -> bool:
    """Return whether ARRAY[...] has items, none of which is written as an array."""
    inner = any(isinstance(item, ast.ArrayOf) for item in array.items)
    return array.kind == "array" and bool(array.items) and not inner


def _written_out(binder: Binder, expr: ast.Quantified, left: Scalar, array: ast.ArrayOf) -> Scalar:
    value = binder.bind(array)
    element = type_of(value).element
    if element is None:  # its items are arrays
        items_type = array_of(item_of(type_of(value)))
        items_of = Call("shaped_items(anyshaped)", (value,), items_type)
        return _over_elements(binder, expr, left, items_of)
    if isinstance(value, Literal):
        items: list[Scalar] = [Literal(v, element) for v in value.value]
    else:
        assert isinstance(value, Call)
        items = list(value.args)
    tests = [
        binder.operate(expr.operator, left, item, expr.at, at_of(expr.left), at_of(array))
        for item in items
    ]
    for test in tests:
        _require_boolean(test, expr.at)
    return conjunction(tests) if expr.kind == "all" else disjunction(tests)


def _array_operand(binder: Binder, expr: ast.Expression, left: Scalar) -> Scalar | None:
    """Return the array on the right; an array of unknown type takes the left side's type."""
    array = binder.bind(expr)
    if is_unknown(array):
        element = TEXT if is_unknown(left) else type_of(left)
        if element.element is not None:
            return None
        found = coerce(binder.planning, array, array_of(element), "implicit", at_of(expr))
        if found is None:
            return None
        array = found
    if type_of(array).name == "shaped":
        items = array_of(item_of(type_of(array)))
        return Call("shaped_items(anyshaped)", (array,), items)
    if type_of(array).name == "list":
        return binder.call("list_to_array", (array,), at_of(expr))
    vector_element = VECTORS.get(type_of(array).name)
    if vector_element is not None:
        return coerce(binder.planning, array, array_of(vector_element), "implicit", at_of(expr))
    return array if type_of(array).element is not None else None


def _over_elements(binder: Binder, expr: ast.Quantified, left: Scalar, array: Scalar) -> Scalar:
    """Return ANY or ALL over the elements of an array that is known only at run time."""
    all_ = expr.kind == "all"
    rows = _rows_of_array(array)
    simple = None if rows is not None else _comparison(binder, expr, left, array)
    if simple is not None:
        return simple
    found = resolve_table("unnest", (type_of(array),))
    elements = rows or FlatMap(Join(()), found.key, (push_down(array),), (found.element,))
    element = Column(0, found.element.type)
    predicate = binder.operate(
        expr.operator, _inward(left), element, expr.at, at_of(expr.left), expr.at
    )
    _require_boolean(predicate, expr.at)
    test: Scalar = AnySubquery(_not(predicate) if all_ else predicate, elements)
    if all_:
        test = _not(test)
    if rows is not None:
        return test
    # Over a NULL array the answer is NULL, not that of an empty array.
    return Case(((Call("is_null", (array,), BOOL), Literal(None, BOOL)),), test, BOOL)


def _rows_of_array(array: Scalar) -> Relation | None:
    """Return the rows of the query of ARRAY(query); None of any other array."""
    match array:
        case Call(
            function="coalesce",
            args=(ScalarSubquery(relation=Reduce(group_key=()) as gathered), Literal(value=())),
        ):
            (first, *more) = gathered.aggregates
            if more or first != Aggregate(
                "array_agg", first.args, first.type, order_by=first.order_by
            ):
                return None
            (value,) = first.args
            return Project(gathered.input, (value.index,)) if isinstance(value, Column) else None
    return None


_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def _comparison(binder: Binder, expr: ast.Quantified, left: Scalar, array: Scalar) -> Scalar | None:
    """Return the function that compares with a whole array, or None for other operators."""
    element = type_of(array).element
    assert element is not None
    with located(expr.at):
        found = resolve(expr.operator, (type_of(left), element))
    target = found.arg_types[0]
    if found.key not in _COMPARISONS or found.arg_types[1].name != target.name:
        return None
    if element.name != found.arg_types[1].name and element.name in ("date", "timestamp"):
        return None  # each is compared so that no time is out of range
    key = f"{found.key}_{expr.kind}"
    whole = coerce(binder.planning, array, array_of(found.arg_types[1]), "implicit", expr.at)
    if whole is None:
        return None
    (value,) = binder.coerced((left,), (target,), (at_of(expr.left),))
    value = to_compare(left, value)
    return Call(key, (value, whole), BOOL)
