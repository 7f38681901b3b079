"""Find pages and ranges inside of a query: rows of a table in the order of one of its keys.

    SELECT ... FROM (SELECT * FROM t ORDER BY at DESC LIMIT 10) p JOIN u ON u.id = p.u
    SELECT ... WHERE id = (SELECT id FROM t WHERE a = 1 ORDER BY at LIMIT 1)
    SELECT max(at) FROM t                                              a page of one row
    SELECT ... FROM t JOIN u ON u.id = t.u WHERE t.at > now() - interval '1 hour'        a range

The first rows of the table up to the last one of the page are enough for it. The other tables of
the query are read by keys, which rows of pages may give.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from msgspec import structs

from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Filter,
    Get,
    Literal,
    OrderKey,
    Reduce,
    Relation,
    TopK,
    single_input,
)
from foreshore.expr.keys import Constant
from foreshore.expr.traversal import inputs_of, sources_of, with_inputs
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import KeysOf, Page, RangeStep, Restricted, TableKeys
from foreshore.sql.optimize.lookup import definitions_of
from foreshore.sql.optimize.restrict import restricted
from foreshore.sql.optimize.table_range import range_of_table, selectivity
from foreshore.sql.optimize.table_reads import table_reads
from foreshore.types import BOOL, INT8


def restricted_to_pages(relation: Relation, keys: KeysOf) -> Restricted | None:
    """Return the steps that read pages, and other tables by keys; None if there are no pages."""
    pages = _Pages(keys)
    paged = pages.named(relation)
    return _beside(pages.steps, paged, keys) if pages.steps else None


def restricted_to_ranges(relation: Relation, keys: KeysOf) -> Restricted | None:
    """Return the steps that read ranges of as few tables as possible, and others by keys.

    None if these do not find all rows, and tables would be read whole.
    """
    ranges: list[tuple[Relation, RangeStep]] = []
    for read in table_reads(relation):
        match range_of_table(read.chain, keys, None, restricted(read.chain, keys)):
            case Restricted(steps=(RangeStep() as step,)):
                ranges.append((read.chain, step))
    ranges.sort(key=lambda each: selectivity(each[1].range), reverse=True)
    steps: list[RangeStep] = []
    for chain, step in ranges:
        name = GlobalId(f"{step.table}_range{len(steps) + 1}")
        ranged = _replaced(relation, chain, _renamed(chain, name))
        if ranged is relation:
            continue  # it stands in two places, and has a name
        relation = ranged
        steps.append(replace(step, alias=name))
        found = _beside(steps, relation, keys)
        if found is not None and not found.reads_whole:
            return found
    return None


def _beside(steps: Sequence[RangeStep], relation: Relation, keys: KeysOf) -> Restricted | None:
    """Return steps with those that find the rows of the other tables by keys; None if none do."""
    names = {step.rows for step in steps}
    if sources_of(relation) <= names:
        return Restricted(tuple(steps), relation)
    few = restricted(relation, lambda id: TableKeys(given=True) if id in names else keys(id))
    return None if few is None else Restricted((*steps, *few.steps), few.relation)


class _Pages:
    """The pages in a relation, each read by a name of its own."""

    def __init__(self, keys: KeysOf) -> None:
        self._keys = keys
        self.steps: list[RangeStep] = []

    def named(self, relation: Relation) -> Relation:
        """Return `relation` with the names of pages in place of their tables."""
        page = None
        match relation:
            case TopK(group_key=(), order_key=order, limit=limit, offset=offset):
                if isinstance(limit, Constant) and (offset is None or isinstance(offset, Constant)):
                    page = self._page(relation, order, limit, offset)
            case Reduce(group_key=(), aggregates=(Aggregate(args=(Column() as column,)) as only,)):
                page = self._extreme(relation, only, column)
            case _:
                pass
        if page is not None:
            return page
        inputs = inputs_of(relation)
        named = tuple([self.named(input) for input in inputs])
        changed = any(a is not b for a, b in zip(inputs, named, strict=True))
        return with_inputs(relation, named) if changed else relation

    def _extreme(self, reduce: Reduce, only: Aggregate, column: Column) -> Relation | None:
        """Return the least or greatest value of a column over its first row that is not NULL."""
        if only.function not in ("min", "max") or only.filter is not None:
            return None
        descending = only.function == "max"
        order = (OrderKey(column, descending, nulls_first=descending),)
        return self._page(reduce, order, Literal(1, INT8), None)

    def _page(
        self,
        node: TopK | Reduce,
        order: Sequence[OrderKey],
        limit: Constant,
        offset: Constant | None,
    ) -> Relation | None:
        """Return a page over rows of a new name; None if no key has its order."""
        chain = node.input
        get = single_input(chain)
        if get is None:
            return None
        found = range_of_table(chain, self._keys, order, restricted(chain, self._keys))
        match found:
            case Restricted(steps=(RangeStep() as step,)) if step.range.is_ordered:
                pass
            case _:
                return None
        name = GlobalId(f"{get.id}_page{len(self.steps) + 1}")
        own = _renamed(chain, name)
        if isinstance(node, TopK):
            page = Page(own, limit, offset, self._ties(step, get, chain, order))
        else:
            page = Page(_without_null(own, order), limit, offset, ())
        self.steps.append(replace(step, page=page, alias=name))
        return with_inputs(node, (own,))

    def _ties(
        self, step: RangeStep, get: Get, chain: Relation, order: Sequence[OrderKey]
    ) -> tuple[int, ...]:
        """Return the columns of the table that order a page; none if these order all rows."""
        low, high = step.range.low.values, step.range.high.values
        pairs = zip(low, high, strict=False)
        equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        definitions = definitions_of(chain) or []
        by = [definitions[key.expr.index] for key in order if isinstance(key.expr, Column)]
        places = tuple([each.index for each in by if isinstance(each, Column)])
        # Rows without a value are equal in no key, so that it does not order them.
        decided = {i for i in places if not get.columns[i].nullable} | {*step.columns[:equal]}
        unique = (key for key in self._keys(step.table).keys if key.constraint is not None)
        return () if any(decided.issuperset(key.columns) for key in unique) else places


def _replaced(relation: Relation, part: Relation, other: Relation) -> Relation:
    """Return a relation with another one in place of a part."""
    if relation is part:
        return other
    inputs = inputs_of(relation)
    kept = tuple([_replaced(input, part, other) for input in inputs])
    changed = any(a is not b for a, b in zip(inputs, kept, strict=True))
    return with_inputs(relation, kept) if changed else relation


def _renamed(chain: Relation, name: GlobalId) -> Relation:
    """Return Map, Filter and Project over a table, over the rows of a name instead."""
    if isinstance(chain, Get):
        return structs.replace(chain, id=name)
    (input,) = inputs_of(chain)
    return with_inputs(chain, (_renamed(input, name),))


def _without_null(relation: Relation, order: Sequence[OrderKey]) -> Relation:
    """Return the rows of a relation that have a value in the columns of an order."""
    columns = [key.expr for key in order if isinstance(key.expr, Column) and key.expr.nullable]
    present = tuple([Call("is_not_null", (each,), BOOL) for each in columns])
    return Filter(relation, present) if present else relation
