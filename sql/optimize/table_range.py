"""Find queries that read a part of a table in the order of one of its keys.

    SELECT ... FROM t WHERE a = 1 AND b BETWEEN 2 AND 9      a range of PRIMARY KEY (a, b)
    SELECT count(*) FROM t WHERE a > 5                       rows that are counted, a range
    SELECT ... FROM t ORDER BY a, b LIMIT 10                 its first rows

The range may hold more rows than the query has: the query's relation is computed over them.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, takewhile

from foreshore.expr.ir import Column, Get, OrderKey, Relation, single_input
from foreshore.expr.keys import KeyRange
from foreshore.sql.optimize.key_range import key_range
from foreshore.sql.optimize.key_steps import (
    KeysOf,
    KeyStep,
    RangeStep,
    Restricted,
    TableKey,
)
from foreshore.sql.optimize.table_reads import table_reads

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
