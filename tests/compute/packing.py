"""Packing: a plan that evaluates many cases of its tables' contents at once.

Every table has one more column, the first, with the case. Joins are within a case and groups are by
case, so the packed plan gives each case's result. This pays the cost of a Spark dataflow once for
hundreds of cases.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pyarrow as pa
from msgspec.structs import replace

from foreshore.compute.engine import Engine
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Aggregate,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.scalars import with_scalars
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.ids import GlobalId
from foreshore.types import INT4, ColumnType
from tests.compute.cases import START, Case, random_history, rows_of, run
from tests.model import Rows, evaluate

CASE = ColumnType(INT4, False)
CASES = Get(GlobalId("u99"), (CASE,))
_IT = Column(0, INT4, False)


def pack_contents(cases: Sequence[Mapping[GlobalId, Rows]]) -> dict[GlobalId, Rows]:
    """Return the contents of all cases in one, and the table of cases."""
    packed: dict[GlobalId, Rows] = {CASES.id: Counter({(i,): 1 for i in range(len(cases))})}
    for i, contents in enumerate(cases):
        for id, rows in contents.items():
            packed.setdefault(id, Counter()).update({(i, *row): n for row, n in rows.items()})
    return packed


def unpack(rows: Rows, case: int) -> Rows:
    """Return the rows of one case."""
    return Counter({row[1:]: count for row, count in rows.items() if row[0] == case})


def pack(relation: Relation) -> Relation:
    """Return the plan over packed tables; its first column is the case."""
    match relation:
        case Get(id=id, columns=columns):
            return Get(id, (CASE, *columns))
        case LocalGet(number=number, columns=columns):
            return LocalGet(number, (CASE, *columns))
        case Constant():
            return Join((CASES, relation))
        case Let(number=number, value=value, body=body):
            return Let(number, pack(value), pack(body))
        case Map(input=input, scalars=scalars):
            return Map(pack(input), tuple(_shift(s, 1) for s in scalars))
        case Filter(input=input, predicates=predicates):
            return Filter(pack(input), tuple(_shift(s, 1) for s in predicates))
        case Project(input=input, outputs=outputs):
            return Project(pack(input), (0, *(i + 1 for i in outputs)))
        case FlatMap(input=input, function=function, args=args, columns=columns):
            return FlatMap(pack(input), function, tuple(_shift(s, 1) for s in args), columns)
        case Join():
            return _pack_join(relation)
        case Reduce():
            return _pack_reduce(relation)
        case TopK(input=input, group_key=group_key, limit=limit, offset=offset):
            order = tuple(_shift_key(key) for key in relation.order_key)
            return TopK(pack(input), (0, *(i + 1 for i in group_key)), order, limit, offset)
        case Window(input=input, partition=partition):
            shifted = with_scalars(relation, lambda scalar: _shift(scalar, 1))
            groups = (0, *(i + 1 for i in partition))
            return replace(shifted, input=pack(input), partition=groups)
        case Negate(input=input):
            return Negate(pack(input))
        case Threshold(input=input):
            return Threshold(pack(input))
        case Union(inputs=inputs):
            return Union(tuple(map(pack, inputs)))
        case TemporalFilter() | JoinOn() | LetRec() | Recursive():
            raise AssertionError("a bound form")


def _shift(scalar: Scalar, by: int) -> Scalar:
    if isinstance(scalar, Column):
        return Column(scalar.index + by, scalar.type, scalar.nullable)
    operands = operands_of(scalar)
    return with_operands(scalar, tuple(_shift(s, by) for s in operands)) if operands else scalar


def _shift_key(key: OrderKey) -> OrderKey:
    return OrderKey(_shift(key.expr, 1), key.descending, key.nulls_first)


def _pack_join(join: Join) -> Relation:
    if not join.inputs:
        return CASES
    places: list[int] = []  # the new position of each column
    cases: list[Scalar] = []
    at = 0
    for input in join.inputs:
        cases.append(Column(at, INT4, False))
        width = len(columns_of(input))
        places += range(at + 1, at + 1 + width)
        at += 1 + width

    def move(scalar: Scalar) -> Scalar:
        if isinstance(scalar, Column):
            return Column(places[scalar.index], scalar.type, scalar.nullable)
        operands = operands_of(scalar)
        return with_operands(scalar, tuple(map(move, operands))) if operands else scalar

    moved = tuple(tuple(map(move, equivalence)) for equivalence in join.equivalences)
    same = (tuple(cases),) if len(cases) > 1 else ()
    packed = Join(tuple(map(pack, join.inputs)), (*moved, *same), join.null_safe)
    return Project(packed, (0, *places))


def _pack_reduce(reduce: Reduce) -> Relation:
    aggregates = tuple(
        Aggregate(
            a.function,
            tuple(_shift(arg, 1) for arg in a.args),
            a.type,
            a.distinct,
            None if a.filter is None else _shift(a.filter, 1),
            tuple(map(_shift_key, a.order_by)),
        )
        for a in reduce.aggregates
    )
    key = (_IT, *(_shift(k, 1) for k in reduce.group_key))
    packed = Reduce(pack(reduce.input), key, aggregates)
    if reduce.group_key:
        return packed
    # Without a key there is a row for each case, even if the case has no rows.
    empty = Threshold(Union((CASES, Negate(Project(packed, (0,))))))
    nothing = tuple(
        Literal(0 if a.function == "count" else None, a.type) for a in reduce.aggregates
    )
    return Union((packed, Map(empty, nothing)))


def check_packed(
    engine: Engine, relation: Relation, random: Random, cases: int, *, singly: bool = False
) -> None:
    """Assert that a dataflow of `cases` packed random histories is exact for each at every time.

    Windows have several times unless they come `singly`.
    """
    histories = [random_history(random) for _ in range(cases)]
    times = len(histories[0])
    packed = pack(relation)
    history = [pack_contents([h[i] for h in histories]) for i in range(times)]
    every = range(2, times)
    cuts = frozenset(every if singly else random.sample(every, random.randint(0, times - 2)))
    outputs = run(engine, Case(packed, history, cuts))
    updates = pa.concat_tables([output.rows for output in outputs])
    for i in range(times):
        rows = rows_of(updates, columns_of(packed), START + i)
        for number, versions in enumerate(histories):
            wanted, errors = evaluate(relation, versions[i])
            assert not errors, errors
            assert unpack(rows, number) == wanted, f"case {number} at {i}"
