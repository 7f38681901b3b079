"""What an altered table promises more than before, and whether its rows fulfil it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.check import first_failing
from foreshore.adapter.write.violations import check_is_violated, key_is_there_twice, nulls_there
from foreshore.catalog.catalog import Planned
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.constraint import Check, Unique, same
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.types import RelationDesc
from foreshore.update import TIME, Timestamp, at_time

Columns = Sequence[int | None]  # where each column was before, None of a new one


@dataclass(frozen=True, slots=True)
class Gained:
    """Promises that are new: keys, conditions, columns that are never NULL."""

    keys: tuple[Unique, ...]
    checks: tuple[Check, ...]
    required: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.keys or self.checks or self.required)


def was(key: Unique, columns: Columns) -> Unique | None:
    """Return a key in the columns of before; None, if one of its columns is new."""
    places = tuple(place for i in key.columns if (place := columns[i]) is not None)
    return replace(key, columns=places) if len(places) == len(key.columns) else None


def gained(old: Planned, new: Planned, columns: Columns) -> Gained:
    """Return what `new` promises and `old` does not.

    Of a table that is another collection from then on, that is all of its keys: they have to be
    arranged anew.
    """
    before = old.unique
    moved = list(columns) != list(range(len(old.desc.names)))
    known = {each.text for each in old.constraints if isinstance(each, Check)}
    return Gained(
        tuple(key for key in new.unique if moved or not any(same(key, other) for other in before)),
        tuple(
            each for each in new.constraints if isinstance(each, Check) and each.text not in known
        ),
        tuple(
            i
            for i, (column, place) in enumerate(zip(new.desc.columns, columns, strict=True))
            if not column.nullable and (place is None or old.desc.columns[place].nullable)
        ),
    )


async def verify(
    context: StatementContext,
    id: GlobalId,
    new: Planned,
    gained: Gained,
    rows: pa.Table,
    committed: pa.Table,
    time: Timestamp,
) -> None:
    """Raise if some of `rows` does not fulfil what the table `id` promises now.

    Indexes of its new keys are made of `committed`, what it holds at `time` without what the
    transaction writes. Both are rows with `__diff`, in the table's columns.
    """

    def look() -> list[KeyIndex]:
        columns, _ = split_diffs(rows)
        state = context.planner.reader().state
        table = state.item(id)
        for i in gained.required:
            if columns[i].null_count:
                raise nulls_there(state, table, new.desc.names[i])
        for check in gained.checks:
            if first_failing(context, check.condition, columns, rows.num_rows) is not None:
                raise check_is_violated(state, table, check)
        built = []
        for key in gained.keys:
            index = KeyIndex(id, key, new.desc, time)
            duplicate = index.duplicate_of([index.layout.updates(rows)])
            if duplicate is not None:
                raise key_is_there_twice(state, new.desc, duplicate, context.time_zone)
            index.fill(index.layout.updates(committed), time)
            built.append(index)
        return built

    if gained:
        built = await blocking.run(context.coordinator.executor, look)
        table = context.transaction.altered(id)
        indexes = {**table.indexes, **{each.constraint.name: each for each in built}}
        context.transaction.stage_altered(id, replace(table, indexes=indexes))


def together(committed: pa.Table, own: list[pa.Table], desc: RelationDesc) -> pa.Table:
    """Return rows with `__diff` and those that a transaction has added to them, added up."""
    if not own:
        return committed
    schema = committed.schema
    parts = [pa.Table.from_arrays(part.columns, schema=schema) for part in own]
    updates = at_time(pa.concat_tables([committed, *parts]), 0)
    return consolidate(updates, desc.stored_schema(), 0).drop_columns([TIME])
