"""The formalism in plain Python, slow and obvious: what everything else is held against.

`evaluate` is what a relation, bound or lowered, means at one time: from the multisets that it reads
to the multiset that it is, and the multiset of its errors. Collections over time are in
tests/ptvc.py.

    >>> two = Constant((((1,), 2),), (ColumnType(INT4),))
    >>> evaluate(Union((two, Negate(two), two)), {})
    (Counter({(1,): 2}), Counter())

Nothing here is clever: a join is a loop over the product, a correlated subquery is evaluated again
for every row, an aggregate sees a list. Scalar functions are the few that tests of plans need; a
key that is not among them is run by `foreshore.expr.evaluate` on one row.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import chain, product, zip_longest
from typing import Any, assert_never

import msgspec

from foreshore.errors import data_error
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    IN_STEP,
    Aggregate,
    And,
    AnySubquery,
    Arguments,
    Call,
    Case,
    Column,
    Constant,
    Environment,
    ErrorOf,
    Exists,
    Filter,
    FlatMap,
    FrameBound,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    Once,
    Or,
    OrderKey,
    OuterColumn,
    Parameter,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from foreshore.expr.scalars import frame_offsets, scalars_of
from foreshore.expr.traversal import walk_scalars
from foreshore.expr.windows import aggregate_of
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT8, Datum, SqlType

Row = tuple[Any, ...]
Rows = Counter[Row]
Errors = Counter[str]


def add(into: Counter[Any], other: Mapping[Any, int]) -> None:
    """Add the multiplicities of `other`, leaving no zeros."""
    for row, count in other.items():
        into[row] += count
        if not into[row]:
            del into[row]


# --- values --------------------------------------------------------------------------------


class NegativeZero(float):
    """-0.0 as rows hold it: in Python's eyes another value than 0.0, as it is another row."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NegativeZero)

    def __hash__(self) -> int:
        return hash(NegativeZero)


NEGATIVE_ZERO = NegativeZero(-0.0)
NAN = float("nan")  # the one that rows hold, so that it is equal to itself in a tuple


class Failure(Exception):
    """The value does not exist; `str` is the error's text."""


def as_datum(value: Any) -> Datum:
    """Return `value`, with the one NaN for any, and -0.0 told apart from 0.0."""
    if isinstance(value, tuple):
        return tuple(map(as_datum, value))
    if not isinstance(value, float):
        datum: Datum = value
        return datum
    if math.isnan(value):
        return NAN
    return NEGATIVE_ZERO if value + 0.0 == 0.0 and math.copysign(1, value) < 0 else value


def representative(datum: Datum) -> Datum:
    """Return, of a float or floats, the one value that stands for all that are equal to it."""
    if isinstance(datum, tuple):
        return tuple(map(representative, datum))
    return as_datum(datum + 0.0) if isinstance(datum, float) else datum


def shown(datum: Datum) -> Any:
    """Return what orders data that are equal but do not look it; 0.0 comes before -0.0."""
    if isinstance(datum, tuple):
        return tuple(map(shown, datum))
    if datum is None or isinstance(datum, float):
        return isinstance(datum, NegativeZero)
    return datum


def ordinal(datum: Datum, type: SqlType) -> Any:
    """Return what stands for a datum that is not NULL in Python's equality and order."""
    match type.name:
        case "numeric":
            assert isinstance(datum, str)
            return Decimal(datum)
        case "float4" | "float8":
            assert isinstance(datum, float)
            return (1, 0.0) if math.isnan(datum) else (0, datum + 0.0)
        case "interval":
            assert isinstance(datum, tuple)
            months, days, micros = datum
            return ((months * 30) + days) * 86_400_000_000 + micros
        case "array" | "int2vector" | "oidvector":
            assert isinstance(datum, tuple)
            element = type.element or SqlType("int8")
            return tuple(nullable_ordinal(value, element) for value in datum)
        case "jsonb":
            assert isinstance(datum, str)
            return document_ordinal(json.loads(datum, parse_int=Decimal, parse_float=Decimal))
        case _:
            return datum.encode() if isinstance(datum, str) else datum


def document_ordinal(document: Any) -> Any:
    """Return what stands for a jsonb document: as PostgreSQL's jsonb_cmp orders it.

    A scalar is compared as an array of one, and is less than an array of one.
    """
    match document:
        case dict():
            return (1, element_ordinal(document))
        case list():
            return (0, len(document), 1, tuple(map(element_ordinal, document)))
        case _:
            return (0, 1, 0, (element_ordinal(document),))


def element_ordinal(element: Any) -> Any:
    """Return what stands for a value within a document: its kind, its length, its parts."""
    match element:
        case None:
            return (0,)
        case str():
            return (1, element.encode())
        case bool():
            return (3, element)
        case Decimal():
            return (2, element)
        case list():
            return (4, len(element), tuple(map(element_ordinal, element)))
        case dict():
            keys = sorted((key.encode() for key in element), key=lambda key: (len(key), key))
            pairs = tuple((key, element_ordinal(element[key.decode()])) for key in keys)
            return (5, len(element), pairs)
        case _:
            raise AssertionError(element)


def nullable_ordinal(datum: Datum, type: SqlType) -> Any:
    """Return what stands for a datum, where NULLs are equal and come last."""
    return (1,) if datum is None else (0, ordinal(datum, type))


class Reversed:
    """A value with its order turned round."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and bool(self.value == other.value)

    def __lt__(self, other: "Reversed") -> bool:
        return bool(other.value < self.value)


def sort_key(datum: Datum, type: SqlType, key: OrderKey) -> Any:
    """Return what stands for `datum` in the order that `key` asks for."""
    if datum is None:
        return (0 if key.nulls_first else 2,)
    value = ordinal(datum, type)
    return (1, Reversed(value) if key.descending else value)


# --- scalars -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scope:
    """What an expression can see besides its row.

    `outer` are the rows that `OuterColumn`s speak of, the innermost first. In a `total` scope, that
    of plans made by `split_errors`, what fails is NULL. In a `lenient` one a row goes where one
    part of a condition is NULL, also if another fails, as PostgreSQL may let it or not.
    """

    inputs: Mapping[GlobalId, Rows]
    locals: Mapping[int, Rows]
    outer: tuple[Row, ...]
    total: bool
    used: set[int]  # the numbers of the locals that have been read
    lenient: bool = False
    time: int = 0  # of temporal filters

    def within(self, row: Row) -> "Scope":
        return replace(self, outer=(row, *self.outer))


def compute(scalar: Scalar, row: Row, scope: Scope) -> Datum:
    """Return the value of `scalar`; raises Failure."""
    match scalar:
        case Column(index=index):
            return as_datum(row[index])
        case OuterColumn(level=level, index=index):
            return as_datum(scope.outer[level - 1][index])
        case Literal(value=value):
            return as_datum(value)
        case Parameter() | Arguments() | Environment():
            raise AssertionError(f"not put in: {scalar}")
        case Call(function="coalesce", args=args):
            lazily = (compute(arg, row, scope) for arg in args)
            return next((value for value in lazily if value is not None), None)
        case Call(args=args):
            values = [compute(arg, row, scope) for arg in args]
            try:
                return as_datum(apply(scalar, values))
            except Failure:
                if scope.total:
                    return None
                raise
        case And(args=args):
            return _connect(args, row, scope, decisive=False)
        case Or(args=args):
            return _connect(args, row, scope, decisive=True)
        case Case(branches=branches, otherwise=otherwise):
            for condition, result in branches:
                if compute(condition, row, scope) is True:
                    return compute(result, row, scope)
            return compute(otherwise, row, scope)
        case ErrorOf(expr=expr):
            return error_of(expr, row, scope)
        case Once(expr=expr):
            return compute(expr, row, scope)
        case Exists(relation=relation):
            return bool(_subquery(relation, row, scope))
        case ScalarSubquery(relation=relation):
            rows = _subquery(relation, row, scope)
            if rows.total() > 1:
                raise Failure(SINGLE_ROW)
            return next((value for (value,) in rows), None)
        case AnySubquery(predicate=predicate, relation=relation):
            found: Datum = False
            inner = scope.within(row)
            failures = Counter[str]()
            for candidate in _subquery(relation, row, scope):
                try:
                    match compute(predicate, candidate, inner):
                        case True:
                            return True
                        case None:
                            found = None
                except Failure as failure:
                    failures[str(failure)] += 1
            if failures:
                raise Failure(min(failures))
            return found
        case _:
            assert_never(scalar)


def error_of(scalar: Scalar, row: Row, scope: Scope) -> str | None:
    """Return the error of evaluating `scalar`, or None."""
    try:
        compute(scalar, row, replace(scope, total=False))
    except Failure as failure:
        return str(failure)
    return None


def _connect(args: Sequence[Scalar], row: Row, scope: Scope, decisive: bool) -> Datum:
    """Three-valued And (`decisive` FALSE) or Or (TRUE), in which the decisive value wins."""
    first: Failure | None = None
    values: list[Datum] = []
    for arg in args:
        try:
            values.append(compute(arg, row, scope))
        except Failure as failure:
            first = first or failure
    if decisive in values:
        return decisive
    if first is not None:
        raise first
    return None if None in values else not decisive


def _subquery(relation: Relation, row: Row, scope: Scope) -> Rows:
    rows, errors = _evaluate(relation, scope.within(row))
    if errors:
        raise Failure(min(errors))
    return rows


SINGLE_ROW = data_error("21000", "more than one row returned by a subquery used as an expression")
LIMITS = {"int2": (15, "smallint"), "int4": (31, "integer"), "int8": (63, "bigint")}


def _integer(value: int, type: SqlType) -> int:
    bits, name = LIMITS[type.name]
    if not -(2**bits) <= value < 2**bits:
        raise Failure(data_error("22003", f"{name} out of range"))
    return value


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise Failure(data_error("22012", "division by zero"))
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _single_row_check(count: int) -> bool:
    if count > 1:
        raise Failure(SINGLE_ROW)
    return False


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: not b < a,
    "gt": lambda a, b: b < a,
    "ge": lambda a, b: not a < b,
}
INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divide,
}
OF_NULLS: dict[str, Callable[..., Datum]] = {
    "is_null": lambda a: a is None,
    "is_not_null": lambda a: a is not None,
    "is_true": lambda a: a is True,
    "is_not_true": lambda a: a is not True,
    "is_false": lambda a: a is False,
    "is_not_false": lambda a: a is not False,
}


def apply(call: Call, values: list[Any]) -> Any:
    """Return what the function of `call` gives for `values`; raises Failure."""
    name = call.function.partition("(")[0]
    types = [type_of(arg) for arg in call.args]
    if name in OF_NULLS:
        return OF_NULLS[name](*values)
    if name in ("is_distinct", "is_not_distinct"):
        a, b = (nullable_ordinal(v, t) for v, t in zip(values, types, strict=True))
        return (a == b) == (name == "is_not_distinct")
    if name in COMPARISONS:
        if None in values:
            return None
        return COMPARISONS[name](*(ordinal(v, t) for v, t in zip(values, types, strict=True)))
    if name == "not":
        return None if values[0] is None else not values[0]
    if name in INTEGERS and all(t.name in LIMITS for t in types):
        return None if None in values else _integer(INTEGERS[name](*values), call.type)
    if name == "single_row_check":
        return _single_row_check(values[0])
    if name == "generate_series":
        return tuple(value for (value,) in table_function(call, values))
    return _registered(call, values)


def _registered(call: Call, values: list[Any]) -> Datum:
    """Run a function that only the registry knows on one row of Literals."""
    from foreshore.expr.evaluate import evaluate as run_kernel

    literals = tuple(Literal(v, type_of(a)) for v, a in zip(values, call.args, strict=True))
    constant = Call(call.function, literals, call.type)
    error = run_kernel(ErrorOf(constant), [], 1)[0].as_py()
    if error is not None:
        raise Failure(error)
    return datum_of(run_kernel(constant, [], 1)[0], call.type)


def datum_of(value: Any, type: SqlType) -> Datum:
    """Return the datum that an Arrow scalar of `type`'s physical form holds."""
    if not value.is_valid:
        return None
    match type.name:
        case "numeric":
            return f"{value.as_py():f}"
        case "date" | "time" | "timestamp" | "timestamptz":
            return int(value.value)
        case "interval":
            return tuple(value.as_py().values())
        case "array" | "int2vector" | "oidvector":
            return tuple(datum_of(part, type.element or SqlType("int8")) for part in value.values)
        case "float4" | "float8":
            return as_datum(float(value.as_py()))
        case _:
            return as_datum(value.as_py())


def table_function(call: Call, values: list[Any]) -> list[Row]:
    """Return the rows that a table function, called as the scalar of its array, gives."""
    if call.function.startswith("generate_series(int"):
        if None in values:
            return []
        start, stop, step = (*values, 1)[:3]
        if step == 0:
            raise Failure(data_error("22023", "step size cannot equal zero"))
        return [(value,) for value in range(start, stop + (1 if step > 0 else -1), step)]
    array = _registered(call, values)
    assert array is None or isinstance(array, tuple)
    return [(value,) for value in array or ()]


# --- relations -----------------------------------------------------------------------------


def evaluate(
    relation: Relation,
    inputs: Mapping[GlobalId, Rows],
    *,
    total: bool = False,
    lenient: bool = False,
    time: int = 0,
) -> tuple[Rows, Errors]:
    """Return the rows and the errors of `relation` over `inputs` at `time`.

    `total` is for plans that `split_errors` has made: what fails in them is NULL, and no error.
    `lenient` gives the errors that no plan may lose: see Scope.
    """
    return _evaluate(relation, Scope(inputs, {}, (), total, set(), lenient, time))


def _condition(scalar: Scalar, scope: Scope) -> Scalar:
    """Return what is TRUE for the rows that a condition lets through."""
    if not scope.lenient:
        return scalar
    if isinstance(scalar, And):
        return And(tuple(_condition(each, scope) for each in scalar.args))
    return Call("coalesce", (scalar, Literal(False, BOOL)), BOOL)


def _evaluate(relation: Relation, scope: Scope) -> tuple[Rows, Errors]:
    errors: Errors = Counter()
    return _rows(relation, scope, errors), errors


def _rows(relation: Relation, scope: Scope, errors: Errors) -> Rows:
    """Return the rows of `relation`, and add to `errors` those of it and of all below it."""
    match relation:
        case Constant(rows=given):
            result: Rows = Counter()
            for row, count in given:
                add(result, {tuple(map(as_datum, row)): count})
            return result
        case Get(id=id):
            return Counter(scope.inputs[id])
        case LocalGet(number=number):
            scope.used.add(number)
            return Counter(scope.locals[number])
        case Let(number=number, value=value, body=body):
            rows, failed = _evaluate(value, scope)
            used: set[int] = set()
            inner = replace(scope, locals={**scope.locals, number: rows}, used=used)
            result = _rows(body, inner, errors)
            if number in used:  # what nobody reads is not computed, and so does not fail
                add(errors, failed)
            scope.used.update(used - {number})
            return result
        case Map(input=input, scalars=scalars):

            def extend(row: Row) -> list[Row]:
                for scalar in scalars:
                    row = (*row, compute(scalar, row, scope))
                return [row]

            return _each_row(_rows(input, scope, errors), extend, errors)
        case Filter(input=input, predicates=predicates):
            conjunction = _condition(And(predicates), scope)
            return _each_row(
                _rows(input, scope, errors),
                lambda row: [row] if compute(conjunction, row, scope) is True else [],
                errors,
            )
        case Project(input=input, outputs=outputs):
            return _each_row(
                _rows(input, scope, errors), lambda row: [tuple(row[i] for i in outputs)], errors
            )
        case FlatMap(input=input, function=function, args=args):

            def call(row: Row) -> list[Row]:
                try:
                    values = [compute(arg, row, scope) for arg in args]
                    if function == IN_STEP:
                        lists: list[Any] = [value or () for value in values]
                        found = list(zip_longest(*lists))
                    else:
                        (array,) = relation.arrays
                        assert isinstance(array, Call)
                        found = table_function(array, values)
                    if not relation.is_numbered:
                        return [(*row, *more) for more in found]
                    return [(*row, *more, number) for number, more in enumerate(found, 1)]
                except Failure:
                    if scope.total:
                        return []
                    raise

            return _each_row(_rows(input, scope, errors), call, errors)
        case Join():
            return _join(relation, scope, errors)
        case Reduce():
            return _reduce(relation, scope, errors)
        case TopK():
            return _top_k(relation, scope, errors)
        case TemporalFilter(input=input, conditions=conditions):
            rows = _rows(input, scope, errors)
            return Counter({row: n for row, n in rows.items() if _is_there(row, conditions, scope)})
        case Window():
            return _window(relation, scope, errors)
        case Negate(input=input):
            return Counter({row: -n for row, n in _rows(input, scope, errors).items()})
        case Threshold(input=input):
            return _threshold(relation, _rows(input, scope, errors))
        case Union(inputs=inputs):
            union: Rows = Counter()
            for input in inputs:
                add(union, _rows(input, scope, errors))
            return union
        case JoinOn():
            return _join_on(relation, scope, errors)
        case LetRec():
            return _let_rec(relation, scope, errors)
        case Recursive():
            return _recursive(relation, scope, errors)
        case _:
            assert_never(relation)


def _is_there(row: Row, conditions: Sequence[tuple[str, int]], scope: Scope) -> bool:
    """Return whether the time satisfies all conditions, pairs of an operator and a column."""
    return all(row[i] is not None and COMPARISONS[op](scope.time, row[i]) for op, i in conditions)


def _threshold(threshold: Threshold, rows: Rows) -> Rows:
    """Return the rows of positive multiplicity, where equal rows are counted together."""
    types = [column.type for column in columns_of(threshold)]
    groups: dict[Any, list[Row]] = {}
    counts: Counter[Any] = Counter()
    for row, count in rows.items():
        group = tuple(map(nullable_ordinal, row, types))
        groups.setdefault(group, []).append(row)
        counts[group] += count
    return Counter({_one_of(groups[group]): n for group, n in counts.items() if n > 0})


def _one_of(equal: list[Row]) -> Row:
    """Return the row that stands for rows that are equal: of each column the first as shown."""
    return tuple(min(map(representative, column), key=shown) for column in zip(*equal, strict=True))


def _each_row(rows: Rows, change: Callable[[Row], list[Row]], errors: Errors) -> Rows:
    """Return what `change` makes of each of `rows`; those for which it fails become errors."""
    result: Rows = Counter()
    failed: Counter[str] = Counter()
    for row, count in rows.items():
        try:
            for changed in change(row):
                add(result, {changed: count})
        except Failure as failure:
            add(failed, {str(failure): count})
    _collect(failed, errors)
    return result


def _collect(failed: Counter[str], errors: Errors) -> None:
    """Add the errors of one node; where its rows were negative they are errors none the less."""
    add(errors, {text: abs(count) for text, count in failed.items()})


def _join(join: Join, scope: Scope, errors: Errors) -> Rows:
    """Compute each input's side of the equivalences, then go through the product."""
    owners = [number for number, input in enumerate(join.inputs) for _ in columns_of(input)]
    inputs = []
    for number, input in enumerate(join.inputs):
        start = owners.index(number) if number in owners else 0

        def sides(row: Row, number: int = number, start: int = start) -> list[Row]:
            padded = (None,) * start + row
            return [
                (
                    row,
                    tuple(
                        nullable_ordinal(compute(scalar, padded, scope), type_of(scalar))
                        if _owner(scalar, owners) == number
                        else ()
                        for scalar in scalars_of(join)
                    ),
                )
            ]

        inputs.append(_each_row(_rows(input, scope, errors), sides, errors))
    result: Rows = Counter()
    for choice in product(*(rows.items() for rows in inputs)):
        owned = [max(values) for values in zip(*(keys for (_, keys), _ in choice), strict=True)]
        if _equal(join, owned):
            row = tuple(datum for (part, _), _ in choice for datum in part)
            add(result, {row: math.prod(count for _, count in choice)})
    return result


def _owner(scalar: Scalar, owners: list[int]) -> int:
    """Return the number of the one input whose columns `scalar` uses."""
    used = {owners[s.index] for s in walk_scalars(scalar) if isinstance(s, Column)}
    assert len(used) <= 1, scalar
    return min(used, default=0)


def _equal(join: Join, sides: list[Any]) -> bool:
    rest = iter(sides)
    for position, equivalence in enumerate(join.equivalences):
        values = {next(rest) for _ in equivalence}
        if len(values) > 1 or (values == {(1,)} and position not in join.null_safe):
            return False
    return True


NOT_CONVERGED = data_error("54000", "recursion did not converge within {} iterations")


def _let_rec(relation: LetRec, scope: Scope, errors: Errors) -> Rows:
    """Compute all values again and again; only the errors of the last round count."""
    latest: dict[int, Rows] = {number: Counter() for number in relation.numbers}
    used: set[int] = set()
    rounds = 0
    while True:
        before, failed = dict(latest), Errors()
        for number, value in zip(relation.numbers, relation.values, strict=True):
            inner = replace(scope, locals={**scope.locals, **latest}, used=used)
            latest[number] = _rows(value, inner, failed)
        rounds += 1
        if latest == before:
            break
        if rounds == relation.limit:
            if relation.fails:
                failed[NOT_CONVERGED.format(rounds)] += 1
            break
    read: set[int] = set()
    inner = replace(scope, locals={**scope.locals, **latest}, used=read)
    found = _rows(relation.body, inner, errors)
    if read & latest.keys():  # what nobody reads is not computed, and so does not fail
        add(errors, failed)
        read |= used
    scope.used.update(read - latest.keys())
    return found


def _recursive(relation: Recursive, scope: Scope, errors: Errors) -> Rows:
    number, result = relation.number, Rows()
    found = _rows(relation.base, scope, errors)
    while True:
        if not relation.all:
            found = Counter(row for row in found if row not in result)
        if not found:
            return result
        add(result, found)
        used: set[int] = set()
        inner = replace(scope, locals={**scope.locals, number: found}, used=used)
        found = _rows(relation.step, inner, errors)
        scope.used.update(used - {number})


def _join_on(join: JoinOn, scope: Scope, errors: Errors) -> Rows:
    """SQL's join as SQL says it: each pair for which `on` is TRUE, then what found no partner."""
    assert not (join.lateral and join.kind in ("right", "full")), join
    on = _condition(join.on, scope)
    lefts = _rows(join.left, scope, errors)
    if not join.lateral:
        rights = _rows(join.right, scope, errors)
    result: Rows = Counter()
    failed: Counter[str] = Counter()
    matched: set[Row] = set()
    for left, left_count in lefts.items():
        if join.lateral:
            rights, inner_errors = _evaluate(join.right, scope.within(left))
            add(errors, inner_errors)
        found = False
        for right, right_count in rights.items():
            try:
                if compute(on, left + right, scope) is not True:
                    continue
            except Failure as failure:
                add(failed, {str(failure): left_count * right_count})
                continue
            found = True
            matched.add(right)
            add(result, {left + right: left_count * right_count})
        if not found and join.kind in ("left", "full"):
            add(result, {left + (None,) * len(columns_of(join.right)): left_count})
    if join.kind in ("right", "full"):
        for right, right_count in rights.items():
            if right not in matched:
                add(result, {(None,) * len(columns_of(join.left)) + right: right_count})
    _collect(failed, errors)
    return result


def _reduce(reduce: Reduce, scope: Scope, errors: Errors) -> Rows:
    def parts(row: Row) -> list[Row]:
        key = tuple(compute(scalar, row, scope) for scalar in reduce.group_key)
        return [(key, tuple(_contribution(a, row, scope) for a in reduce.aggregates))]

    rows = _each_row(_rows(reduce.input, scope, errors), parts, errors)
    assert all(count > 0 for count in rows.values()), "a group of less than no rows"
    types = [type_of(scalar) for scalar in reduce.group_key]
    groups: dict[Any, tuple[list[Row], list[Row]]] = {}
    if not reduce.group_key:
        groups[()] = ([()], [])
    for key, contributions in rows.elements():
        group = tuple(map(nullable_ordinal, key, types))
        keys, members = groups.setdefault(group, ([], []))
        keys.append(key)
        members.append(contributions)
    result: Rows = Counter()
    for keys, members in groups.values():
        values = tuple(
            aggregate([m[i] for m in members if m[i] is not None], a)
            for i, a in enumerate(reduce.aggregates)
        )
        add(result, {_one_of(keys) + values: 1})
    return result


def _contribution(a: Aggregate, row: Row, scope: Scope) -> Row | None:
    """Return the arguments and order keys that `row` brings to the aggregate, None if none."""
    if a.filter is not None and compute(a.filter, row, scope) is not True:
        return None
    args = tuple(compute(arg, row, scope) for arg in a.args)
    return args, tuple(compute(key.expr, row, scope) for key in a.order_by)


def aggregate(members: list[Row], a: Aggregate) -> Datum:
    """Return the aggregate of `members`, each a pair of arguments and order keys."""
    types = [type_of(arg) for arg in a.args]

    def order(member: Row) -> Any:
        args, keys = member
        first = tuple(
            sort_key(value, type_of(key.expr), key)
            for value, key in zip(keys, a.order_by, strict=True)
        )
        return first, tuple(map(nullable_ordinal, args, types)), shown(args)

    if a.function == "comoment_float":
        members = [member for member in members if None not in member[0]]
    elif a.function != "array_agg" and a.args:
        members = [member for member in members if member[0][0] is not None]
    if a.distinct or a.function in ("min", "max"):
        members = [(tuple(map(representative, args)), keys) for args, keys in members]
    members = sorted(members, key=order)
    if a.distinct:
        unique = {tuple(map(nullable_ordinal, args, types)): (args, keys) for args, keys in members}
        members = sorted(unique.values(), key=order)
    rows = [args for args, _ in members]
    if a.function == "count":
        return len(rows)
    if not rows:
        return None
    values = [args[0] for args in rows]
    match a.function:
        case "sum":
            with localcontext() as context:
                context.prec = 100
                return f"{sum(map(Decimal, values)):.{a.type.scale or 0}f}"
        case "sum_float":
            return sum_float(values)
        case "comoment_float":
            return comoment_float(rows)
        case "min":
            return min(values, key=lambda value: ordinal(value, types[0]))  # type: ignore[no-any-return]
        case "max":
            return max(values, key=lambda value: ordinal(value, types[0]))  # type: ignore[no-any-return]
        case "array_agg":
            return tuple(values)
        case "string_agg":
            return "".join(
                ("" if i == 0 else delimiter or "") + value
                for i, (value, delimiter) in enumerate(rows)
            )
        case _:
            assert_never(a.function)


def comoment_float(pairs: list[Any]) -> float:
    """Return the sum of the products of deviations from the means, rounded once."""
    if not all(map(math.isfinite, chain.from_iterable(pairs))):
        return NAN
    xs, ys = ([Fraction(value) for value in values] for values in zip(*pairs, strict=True))
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    exact = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact)


def sum_float(values: list[float]) -> float:
    """Return the sum, rounded once."""
    special = {value for value in values if math.isinf(value)}
    if any(math.isnan(value) for value in values) or len(special) > 1:
        return NAN
    if special:
        return special.pop()
    exact = sum(map(Fraction, values))
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact)


def _top_k(top_k: TopK, scope: Scope, errors: Errors) -> Rows:
    types = [column.type for column in columns_of(top_k.input)]

    def keyed(row: Row) -> list[Row]:
        keys = (compute(key.expr, row, scope) for key in top_k.order_key)
        return [(row, tuple(keys))]

    rows = _each_row(_rows(top_k.input, scope, errors), keyed, errors)
    assert all(count > 0 for count in rows.values()), "less than no rows to order"

    def order(member: Row) -> Any:
        row, values = member
        first = tuple(
            sort_key(value, type_of(key.expr), key)
            for value, key in zip(values, top_k.order_key, strict=True)
        )
        return first, tuple(map(nullable_ordinal, row, types)), shown(row)

    groups: dict[Any, list[Row]] = {}
    for member in rows.elements():
        group = tuple(nullable_ordinal(member[0][i], types[i]) for i in top_k.group_key)
        groups.setdefault(group, []).append(member)
    offset, limit = (_bound(b, scope, errors) for b in (top_k.offset, top_k.limit))
    start = offset or 0
    result: Rows = Counter()
    for members in groups.values():
        ordered = [row for row, _ in sorted(members, key=order)]
        add(result, Counter(ordered[start : None if limit is None else start + limit]))
    return result


def _bound(bound: Scalar | None, scope: Scope, errors: Errors) -> int | None:
    if bound is None:
        return None
    try:
        value = compute(bound, (), scope)
    except Failure as failure:
        errors[str(failure)] += 1
        return None
    assert value is None or (isinstance(value, int) and value >= 0), value
    return value


# --- windows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A row of a partition: the row, the values of the order's keys, those of each function."""

    row: Row
    keys: Row
    args: tuple[Row | None, ...]  # None: the function's filter leaves the row out


def _window(window: Window, scope: Scope, errors: Errors) -> Rows:
    types = [column.type for column in columns_of(window.input)]

    def keyed(row: Row) -> list[Row]:
        keys = tuple(compute(key.expr, row, scope) for key in window.order_key)
        args = tuple(_arguments(function, row, scope) for function in window.functions)
        return [(row, keys, args)]

    rows = _each_row(_rows(window.input, scope, errors), keyed, errors)
    assert all(count > 0 for count in rows.values()), "less than no rows to order"
    offsets = {
        offset: _offset(offset, scope, errors)
        for offset in dict.fromkeys(o for f in window.functions for o in frame_offsets(f))
    }

    def peers(place: Place) -> Any:
        return tuple(
            sort_key(value, type_of(key.expr), key)
            for value, key in zip(place.keys, window.order_key, strict=True)
        )

    def order(place: Place) -> Any:
        return peers(place), tuple(map(nullable_ordinal, place.row, types)), shown(place.row)

    partitions: dict[Any, list[Place]] = {}
    for member in rows.elements():
        partition = tuple(nullable_ordinal(member[0][i], types[i]) for i in window.partition)
        partitions.setdefault(partition, []).append(Place(*member))
    result: Rows = Counter()
    for places in partitions.values():
        places.sort(key=order)
        groups = [sum(peers(q) < peers(p) for q in places) for p in places]  # rank - 1
        for at, place in enumerate(places):
            values = tuple(
                _of_window(function, n, places, at, groups, window, offsets)
                for n, function in enumerate(window.functions)
            )
            add(result, {place.row + values: 1})
    return result


def _arguments(function: WindowFunction, row: Row, scope: Scope) -> Row | None:
    if function.filter is not None and compute(function.filter, row, scope) is not True:
        return None
    return tuple(compute(arg, row, scope) for arg in function.args)


def _offset(offset: Scalar, scope: Scope, errors: Errors) -> Datum:
    try:
        return compute(offset, (), scope)
    except Failure as failure:
        errors[str(failure)] += 1
        return None


def _of_window(
    function: WindowFunction,
    n: int,
    places: list[Place],
    at: int,
    groups: list[int],
    window: Window,
    offsets: dict[Scalar, Datum],
) -> Datum:
    """Return the `n`-th function for the row at `at`; `groups` are the places of first peers."""
    args = places[at].args[n] or ()
    match function.function:
        case "row_number":
            return at + 1
        case "rank":
            return groups[at] + 1
        case "dense_rank":
            return len(set(groups[: at + 1]))
        case "lag" | "lead":
            _, rows, default = args
            if rows is None:
                return None
            found = at - rows if function.function == "lag" else at + rows
            if not 0 <= found < len(places):
                return default  # type: ignore[no-any-return]
            return places[found].args[n][0]  # type: ignore[no-any-return]
        case "last_known":
            values = [args[0] for args in (p.args[n] for p in places[: at + 1]) if args is not None]
            return next((value for value in reversed(values) if value is not None), None)
    frame = _frame(function, places, at, groups, window, offsets)
    members = [places[i].args[n] for i in frame]
    match function.function:
        case "nth_value":
            nth = args[1]
            return None if nth is None or nth > len(members) else members[nth - 1][0]
        case "last_value":
            return members[-1][0] if members else None  # type: ignore[index]
    core = aggregate_of(function)
    if core.function in ("array_agg", "string_agg"):
        core = msgspec.structs.replace(core, order_by=(OrderKey(Literal(None, INT8)),))
    kept = [(args, (number,)) for number, args in enumerate(members) if args is not None]
    return aggregate(kept if core.order_by else [(args, ()) for args, _ in kept], core)


def _frame(
    function: WindowFunction,
    places: list[Place],
    at: int,
    groups: list[int],
    window: Window,
    offsets: dict[Scalar, Datum],
) -> list[int]:
    """Return the places of the rows in the frame of the row at `at`."""
    frame = function.frame
    starts = sorted(set(groups))

    def in_frame(i: int) -> bool:
        return all(
            bound is None or _within(bound, is_start, i)
            for bound, is_start in ((frame.start, True), (frame.end, False))
        )

    def _within(bound: FrameBound, is_start: bool, i: int) -> bool:
        sign = -1 if bound.side == "preceding" else 1
        offset = 0 if bound.offset is None else offsets[bound.offset]
        if frame.unit == "rows":
            edge = at + sign * (offset or 0)  # type: ignore[operator]
            return i >= edge if is_start else i <= edge
        if frame.unit == "groups" or bound.offset is None:
            edge = starts.index(groups[at]) + sign * (offset or 0)  # type: ignore[operator]
            group = starts.index(groups[i])
            return group >= edge if is_start else group <= edge
        key = window.order_key[0]
        here, there = places[at].keys[0], places[i].keys[0]
        if here is None or there is None:
            return groups[i] >= groups[at] if is_start else groups[i] <= groups[at]
        ahead = sign if not key.descending else -sign
        return in_range(there, here, offset, type_of(key.expr), ahead, is_start != key.descending)

    excluded: set[int] = set()
    own = [i for i in range(len(places)) if groups[i] == groups[at]]
    match frame.exclude:
        case "current row":
            excluded = {at}
        case "group":
            excluded = set(own)
        case "ties":
            excluded = {*own} - {at}
    return [i for i in range(len(places)) if in_frame(i) and i not in excluded]


def in_range(value: Any, base: Any, offset: Any, type: SqlType, sign: int, at_least: bool) -> bool:
    """Return whether `value` is at least, or at most, `base` and `sign` times `offset`."""
    if isinstance(base, float):
        if math.isnan(base) or math.isnan(value):
            there, here = nullable_ordinal(value, type), nullable_ordinal(base, type)
            return bool(there >= here if at_least else there <= here)
        edge: Any = base + sign * offset
        if math.isnan(edge):  # infinitely far before infinity, or after its opposite
            return True
    elif type.name == "numeric":
        value, edge = Decimal(value), Decimal(base) + sign * Decimal(offset)
    else:
        edge = base + sign * offset
    return bool(value >= edge if at_least else value <= edge)
