"""Find queries that read a part of a table in the order of one of its keys.

    SELECT ... FROM t WHERE a = 1 AND b BETWEEN 2 AND 9      a range of PRIMARY KEY (a, b)
    SELECT count(*) FROM t WHERE a > 5                       rows that are counted, a range
    SELECT ... FROM t ORDER BY a, b LIMIT 10                 its first rows
    SELECT ... FROM t WHERE a > 1 LIMIT 10                   first rows of a range, in any order
    SELECT ... FROM t JOIN u USING (k) ORDER BY t.a LIMIT 10 likewise, then rows of u by key
    SELECT t.a, (SELECT count(*) FROM u WHERE u.k = t.a) FROM t ORDER BY t.a LIMIT 10

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
    Let,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Scalar,
    Union,
    single_input,
)
from foreshore.expr.keys import KeyRange
from foreshore.expr.split import shift
from foreshore.sql.optimize.key_range import key_range
from foreshore.sql.optimize.key_steps import (
    KeysOf,
    KeyStep,
    RangeStep,
    Restricted,
    TableKey,
    TableKeys,
)
from foreshore.sql.optimize.lookup import definitions_of
from foreshore.sql.optimize.restrict import restricted
from foreshore.sql.optimize.table_reads import starts_of, table_reads

# The order of these is that of their data, in Arrow and in Python; numerics of a scale are ordered
# likewise, as decimals.
ORDERED = frozenset(
    "int2 int4 int8 numeric date time timestamp timestamptz text varchar name".split()
)


def range_of_table(
    relation: Relation,
    keys: KeysOf,
    order_by: Sequence[OrderKey] | None,
    found: Restricted | None,
) -> Restricted | None:
    """Return the range of a key of the only table of `relation` that holds the rows of a query.

    `order_by` is the order that LIMIT cuts off: without keys any, None if there is no LIMIT.
    `found` is how keys restrict the table; None is returned if that is better. If only the number
    of rows can tell, which is known when the query runs, both are returned, as one step.
    """
    get, chain = single_input(relation), relation
    if get is None:  # rows of one table that are grouped or the like
        reads = [*islice(table_reads(relation), 2)]
        if len(reads) != 1:
            return None
        get, chain, order_by = reads[0].get, reads[0].chain, None
    if found is not None and not order_by:
        order_by = None  # rows under keys, of which a part is read, conflict with fewer writes
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

    The first rows of the join are those of first rows of that table. Outer joins and subqueries
    read it several times.
    """
    origin = _Origin()
    if not order_by or not origin.find(relation, [key.expr for key in order_by]):
        return None
    reads = [*table_reads(relation)]
    get = single_input(origin.reads[0][0])
    assert get is not None, origin.reads
    own = [read.chain for read in reads if read.get.id == get.id]
    if {*map(id, own)} != {id(chain) for chain, _ in origin.reads} or len(own) == len(reads):
        return None
    if origin.is_grouped and not origin.is_of_one_row(keys(get.id)):
        return None
    steps = []
    for key in keys(get.id).keys:
        found = {
            _step(chain, get, key, _ordered_by(order_by, columns))
            for chain, columns in origin.reads
        }
        steps += [each for each in found if each and len(found) == 1 and each.range.is_ordered]
    if not steps:
        return None
    others = restricted(relation, lambda id: TableKeys(given=True) if id == get.id else keys(id))
    if others is None or not all(isinstance(step, KeyStep) for step in others.steps):
        return None
    first = max(steps, key=lambda step: selectivity(step.range))
    return Restricted((first, *others.steps), others.relation)


def _ordered_by(order_by: Sequence[OrderKey], columns: Sequence[Column]) -> list[OrderKey]:
    return [structs.replace(key, expr=e) for key, e in zip(order_by, columns, strict=True)]


class _Origin:
    """The reads of the table of which columns of a relation are columns.

    Each row of the relation comes of rows of the table with the same values in these.
    """

    def __init__(self) -> None:
        self.reads: list[tuple[Relation, Sequence[Column]]] = []  # and the columns of each
        self.is_grouped = False  # rows of the table with equal values are taken together
        self._lets: dict[int, Relation] = {}

    def find(self, relation: Relation, scalars: Sequence[Scalar]) -> bool:
        """Add the reads below a relation; return whether `scalars` are columns of them."""
        columns = [each for each in scalars if isinstance(each, Column)]
        if len(columns) < len(scalars):
            return False
        if single_input(relation) is not None:
            if all(relation is not chain for chain, _ in self.reads):
                self.reads.append((relation, columns))
            return True
        match relation:
            case Filter(input=input) | Negate(input=input):
                return self.find(input, columns)
            case Project(input=input, outputs=outputs):
                kept = [structs.replace(each, index=outputs[each.index]) for each in columns]
                return self.find(input, kept)
            case Map(input=input, scalars=mapped):
                width = len(columns_of(input))
                return self.find(
                    input, [e if e.index < width else mapped[e.index - width] for e in columns]
                )
            case Join(inputs=inputs):
                return self._find_in_join(relation, inputs, columns)
            case Union(inputs=inputs):
                return all([self.find(input, columns) for input in inputs])
            case Let(number=number, value=value, body=body):
                self._lets[number] = value
                return self.find(body, columns)
            case LocalGet(number=number) if number in self._lets:
                return self.find(self._lets[number], columns)
            case Reduce(input=input, group_key=group_key):
                self.is_grouped = True
                known = all(each.index < len(group_key) for each in columns)
                return known and self.find(input, [group_key[each.index] for each in columns])
            case _:
                return False

    def _find_in_join(
        self, join: Join, inputs: Sequence[Relation], columns: Sequence[Column]
    ) -> bool:
        starts = starts_of(join)
        for place, input in enumerate(inputs):
            if all(starts[place] <= each.index < starts[place + 1] for each in columns):
                return self.find(input, [shift(each, -starts[place]) for each in columns])
        return False

    def is_of_one_row(self, keys: TableKeys) -> bool:
        """Whether no two rows of the table have the same values."""
        found = []
        for chain, columns in self.reads:
            definitions = definitions_of(chain)
            if definitions is None:
                return False
            over = [definitions[each.index] for each in columns]
            found.append({each.index for each in over if isinstance(each, Column)})
        unique = [set(key.columns) for key in keys.keys if key.constraint is not None]
        return all(any(key <= each for key in unique) for each in found)


def _step(
    relation: Relation, get: Get, key: TableKey, order_by: Sequence[OrderKey] | None
) -> RangeStep | None:
    if not key.prefix or key.index is not None:
        return None
    types = get.columns
    columns = tuple(takewhile(lambda i: types[i].type.name in ORDERED, key.columns))
    parts = [Column(i, types[i].type, types[i].nullable) for i in columns]
    found = key_range(relation, parts, order_by or ())
    if found is not None and order_by is not None and not order_by:
        found = replace(found, is_ordered=True)
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
