"""Find queries that read a part of a table in the order of one of its keys.

    SELECT ... FROM t WHERE a = 1 AND b BETWEEN 2 AND 9      a range of PRIMARY KEY (a, b)
    SELECT count(*) FROM t WHERE a > 5                       rows that are counted, a range
    SELECT ... FROM t ORDER BY a, b LIMIT 10                 its first rows
    SELECT ... FROM t JOIN u USING (k) ORDER BY t.a LIMIT 10 likewise, then rows of u by key

The range may hold more rows than the query has: the query's relation is computed over them.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, takewhile

from msgspec import structs

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Column,
    Filter,
    Get,
    Join,
    Map,
    OrderKey,
    Project,
    Relation,
    Scalar,
    single_input,
)
from foreshore.expr.keys import KeyRange
from foreshore.expr.split import shift
from foreshore.expr.traversal import walk_relations
from foreshore.sql.optimize.key_range import key_range
from foreshore.sql.optimize.key_steps import (
    KeysOf,
    KeyStep,
    RangeStep,
    Restricted,
    TableKey,
    TableKeys,
)
from foreshore.sql.optimize.restrict import restricted
from foreshore.sql.optimize.table_reads import starts_of, table_reads

# The order of these is that of their data, in Arrow and in Python.
ORDERED = frozenset("int2 int4 int8 date time timestamp timestamptz text varchar name".split())


def range_of_table(
    relation: Relation, keys: KeysOf, order_by: Sequence[OrderKey], found: Restricted | None
) -> Restricted | None:
    """Return the range of a key of the only table of `relation` that holds the rows of a query.

    `order_by` is the order that LIMIT cuts off, if any. `found` is how keys restrict the table;
    None is returned if that is better. If only the number of rows can tell, which is known when
    the query runs, both are returned, as one step.
    """
    get, chain = single_input(relation), relation
    if get is None:  # rows of one table that are grouped or the like
        reads = [*islice(table_reads(relation), 2)]
        if len(reads) != 1:
            return None
        get, chain, order_by = reads[0].get, reads[0].chain, ()
    steps = [step for key in keys(get.id).keys if (step := _step(chain, get, key, order_by))]
    if not steps:
        return None
    best = max(steps, key=lambda step: selectivity(step.range))
    if found is not None and not _is_better(best, found):
        (known, *more) = found.steps
        if more or not isinstance(known, KeyStep):
            return None
        within = [each for each in steps if _narrows(each, known)]
        return Restricted((replace(known, range=within[0]),), found.relation) if within else None
    return Restricted((best,), relation)


def first_of_join(
    relation: Relation, keys: KeysOf, order_by: Sequence[OrderKey]
) -> Restricted | None:
    """Return the range of one table in the order of a join, and how its rows find the others'.

    The first rows of the join are those of first rows of that table.
    """
    linear = Join | Filter | Map | Project | Get
    if not order_by or not all(isinstance(node, linear) for node in walk_relations(relation)):
        return None
    reads = [*table_reads(relation)]
    below = _below(relation, [key.expr for key in order_by])
    if below is None or len({each.get.id for each in reads}) < len(reads) or len(reads) < 2:
        return None
    chain, exprs = below
    get = next(each.get for each in reads if each.chain is chain)
    order = [structs.replace(key, expr=e) for key, e in zip(order_by, exprs, strict=True)]
    steps = [step for key in keys(get.id).keys if (step := _step(chain, get, key, order))]
    ordered = [step for step in steps if step.range.is_ordered]
    if not ordered:
        return None
    found = restricted(relation, lambda id: TableKeys(given=True) if id == get.id else keys(id))
    if found is None or not all(isinstance(step, KeyStep) for step in found.steps):
        return None
    first = max(ordered, key=lambda step: selectivity(step.range))
    return Restricted((first, *found.steps), found.relation)


def _below(
    relation: Relation, scalars: Sequence[Scalar]
) -> tuple[Relation, Sequence[Scalar]] | None:
    """Return the read of a table that all `scalars` are columns of, and them as these."""
    columns = [each for each in scalars if isinstance(each, Column)]
    if len(columns) < len(scalars):
        return None
    if single_input(relation) is not None:
        return relation, columns
    match relation:
        case Filter(input=input):
            return _below(input, columns)
        case Project(input=input, outputs=outputs):
            kept = [structs.replace(each, index=outputs[each.index]) for each in columns]
            return _below(input, kept)
        case Map(input=input, scalars=mapped):
            width = len(columns_of(input))
            return _below(
                input, [e if e.index < width else mapped[e.index - width] for e in columns]
            )
        case Join(inputs=inputs):
            starts = starts_of(relation)
            for place, input in enumerate(inputs):
                if all(starts[place] <= each.index < starts[place + 1] for each in columns):
                    return _below(input, [shift(each, -starts[place]) for each in columns])
            return None
        case _:
            return None


def _step(
    relation: Relation, get: Get, key: TableKey, order_by: Sequence[OrderKey]
) -> RangeStep | None:
    if not key.prefix or key.index is not None:
        return None
    types = get.columns
    columns = tuple(takewhile(lambda i: types[i].type.name in ORDERED, key.columns))
    parts = [Column(i, types[i].type, types[i].nullable) for i in columns]
    found = key_range(relation, parts, order_by)
    return None if found is None else RangeStep(get.id, key, columns, found)


def _is_better(step: RangeStep, found: Restricted) -> bool:
    """Whether reading in order reads fewer rows than all under the first columns of a key."""
    if not step.range.is_ordered or len(found.steps) > 1:
        return False
    (other,) = found.steps
    if not isinstance(other, KeyStep) or other.constraint is not None:
        return False
    equal = step.columns[: min(len(step.range.low.values), len(step.range.high.values))]
    return set(other.columns) <= set(equal) and len(other.keys) == 1


def _narrows(step: RangeStep, other: KeyStep) -> bool:
    """Whether a range has a part of the rows under the first columns of the same key."""
    if other.constraint is not None or other.by != step.by or len(other.keys) != 1:
        return False
    if other.sources or step.range.is_ordered:
        return False
    (equal,), low, high = other.keys, step.range.low.values, step.range.high.values
    width = len(equal)
    return low[:width] == high[:width] == equal and max(len(low), len(high)) > width


def selectivity(found: KeyRange) -> tuple[int, int, bool]:
    """Return how few rows a range probably has: more for fewer."""
    ends = sorted((len(found.low.values), len(found.high.values)))
    return ends[0], ends[1], found.is_ordered
