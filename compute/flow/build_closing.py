"""From a filter of rows by watermarks to its operator, and what may be forgotten below it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from foreshore.compute.flow.layout import Place, layout_of
from foreshore.compute.flow.operators.arranged import Arranged
from foreshore.compute.flow.operators.closed_groups import ClosedGroups, ClosedRows
from foreshore.compute.flow.operators.closing import Closing, Freed, Marks
from foreshore.compute.flow.operators.spread_join import SpreadArranged
from foreshore.compute.flow.waiting import Waiting
from foreshore.expr import ir
from foreshore.expr.bounded_columns import BoundedColumns, Bounds
from foreshore.expr.columns import columns_of
from foreshore.expr.traversal import inputs_of, walk_relations
from foreshore.expr.watermarks import Closing as Closed
from foreshore.expr.watermarks import closing_of, watermarked

if TYPE_CHECKING:
    from foreshore.compute.flow.build import Builder

_TIMES = ("timestamp", "timestamptz")
_MONTH = 31 * 86_400_000_000  # at most


def closed_by(chain: Sequence[ir.Relation]) -> Closed | None:
    """Return the filter by watermarks with which a chain begins; None if there is none.

    What follows it must not use the watermarks.
    """
    if len(chain) < 2 or not isinstance(chain[1], ir.Project):
        return None
    closed = closing_of(chain[0])
    if closed is None or any(watermarked(mark) is None for mark in closed.watermarks):
        return None
    width = len(columns_of(closed.rows))
    return closed if all(i < width for i in chain[1].outputs) else None


def closed_joins(relation: ir.Relation) -> Iterator[ir.Relation]:
    """Yield the joins whose inputs are forgotten, outside of recursions: they share no rows.

    They are the joins of rows with watermarks, and those in which rows close.
    """
    stack = [relation]
    while stack:
        node = stack.pop()
        match node:
            case ir.Project(input=ir.Filter(input=join) as filter):
                closed = closed_by((filter, node))
                if closed is not None:
                    yield join
                    columns = BoundedColumns()
                    columns.of(closed.rows)
                    yield from (each for each in columns.joined if columns.closing_in(each))
            case ir.LetRec():
                continue
        stack.extend(inputs_of(node))


def build_closing(builder: "Builder", closed: Closed) -> int:
    """Build the operator of a filter by watermarks; return its number."""
    parts = (closed.rows, *closed.watermarks)
    layouts = [layout_of(columns_of(each)) for each in parts]
    rows, *marks = [
        builder.in_layout(builder.node(each), layout)
        for each, layout in zip(parts, layouts, strict=True)
    ]
    # Equal rows wait with one worker, where they cancel. Each worker follows the watermarks.
    numbers = [builder.by_columns(rows), *map(builder.at_all, marks)]
    context = builder.context
    waiting = context.own(Waiting(layouts[0].words, context.seed))
    return builder.add(
        Closing(
            numbers,
            layouts,
            closed.column,
            waiting,
            context.seed,
            [*_freed(builder, closed)],
            inclusive=closed.inclusive,
        )
    )


def _freed(builder: "Builder", closed: Closed) -> Iterator[Freed]:
    """Yield the groups that close with these watermarks."""
    marked = enumerate(map(watermarked, closed.watermarks))
    numbers = {each[0]: (i, each[1]) for i, each in marked if each is not None}
    columns = BoundedColumns()
    columns.of(closed.rows)
    bounded = columns.found | {join: columns.closing_in(join) for join in columns.joined}
    for node in dict.fromkeys(walk_relations(closed.rows)):
        known = {
            column: _marks(bounds, numbers)
            for column, bounds in sorted(bounded.get(node, {}).items())
            if bounds and all(each.get in numbers for each in bounds)
        }
        if isinstance(node, ir.Join):
            yield from _freed_of_join(builder, node, known)
        operator = builder.operators[builder.built[node]] if node in builder.built else None
        if isinstance(operator, ClosedGroups):
            places = _places(node)
            column = next((each for each in known if each in places), None)
            if column is not None:
                yield Freed(operator, places[column], known[column])


def _freed_of_join(builder: "Builder", join: ir.Join, known: dict[int, Marks]) -> Iterator[Freed]:
    """Yield the inputs of a join that are arranged for it alone.

    A row with a closed value finds no partners that are still to come, in whichever input it is.
    """
    columns = columns_of(join)
    for lookup in builder.lookups.get(join, ()):
        readable = None if lookup is None else lookup.readable
        if lookup is None or type(readable) not in (Arranged, SpreadArranged):
            continue
        assert isinstance(readable, Arranged | SpreadArranged)
        for column, marks in known.items():
            stored = lookup.outputs.get(column)
            if isinstance(stored, ir.Column) and columns[column].type.name in _TIMES:
                spine = ClosedRows(readable.spine)
                yield Freed(spine, lookup.layout.places[stored.index], marks)
                break


def _places(node: ir.Relation) -> dict[int, Place]:
    """Return where the times of a group's key are in it, by columns of the output."""
    columns = columns_of(node)
    match node:
        case ir.Reduce(group_key=key):
            group: Sequence[int] = range(len(key))
        case ir.TopK(group_key=group) | ir.Window(partition=group):
            pass
        case ir.Threshold():
            group = range(len(columns))
        case _:
            return {}
    layout = layout_of(tuple(columns[i] for i in group))
    return {
        column: place
        for column, place in zip(group, layout.places, strict=True)
        if columns[column].type.name in _TIMES
    }


def _marks(bounds: Bounds, numbers: dict[ir.Get, tuple[int, int]]) -> Marks:
    """Return the numbers of watermarks, with how far before each values are closed.

    `numbers` also has by how much each is earlier than that of its relation.
    """
    found = []
    for each in sorted(bounds, key=lambda each: numbers[each.get]):
        number, earlier = numbers[each.get]
        offset = each.first + each.months * _MONTH + each.micros + each.inclusive
        found.append((number, earlier - offset))
    return tuple(found)
