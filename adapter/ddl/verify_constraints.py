"""Constraints that ALTER TABLE adds, and their check against the table's rows."""

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

Columns = Sequence[int | None]  # the previous position of each column, None for a new one


@dataclass(frozen=True, slots=True)
class AddedConstraints:
    """The added keys, CHECKs and NOT NULL columns."""

    keys: tuple[Unique, ...]
    checks: tuple[Check, ...]
    required: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.keys or self.checks or self.required)


def previous_key(key: Unique, columns: Columns) -> Unique | None:
    """Return a key over the previous columns, None if one of its columns is new."""
    places = tuple(place for i in key.columns if (place := columns[i]) is not None)
    return replace(key, columns=places) if len(places) == len(key.columns) else None


def added_constraints(old: Planned, new: Planned, columns: Columns) -> AddedConstraints:
    """Return the constraints of `new` that `old` lacks.

    If the table gets a new collection these are all of its keys, which need new indexes.
    """
    before = old.unique
    moved = list(columns) != list(range(len(old.desc.names)))
    known = {each.text for each in old.constraints if isinstance(each, Check)}
    return AddedConstraints(
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
    added: AddedConstraints,
    rows: pa.Table,
    committed: pa.Table,
    time: Timestamp,
) -> None:
    """Raise PostgreSQL's error if `rows` violate the added constraints of table `id`.

    `rows` include the transaction's own, `committed` are those at `time` without them; both have
    `__diff` and the table's new columns. Indexes of added keys are built from `committed`.
    """

    def check() -> list[KeyIndex]:
        columns, _ = split_diffs(rows)
        state = context.planner.reader().state
        table = state.item(id)
        for i in added.required:
            if columns[i].null_count:
                raise nulls_there(state, table, new.desc.names[i])
        for check in added.checks:
            if first_failing(context, check.condition, columns, rows.num_rows) is not None:
                raise check_is_violated(state, table, check)
        built = []
        for key in added.keys:
            index = KeyIndex(id, key, new.desc, time)
            duplicate = index.duplicate_of([index.layout.updates(rows)])
            if duplicate is not None:
                raise key_is_there_twice(state, new.desc, duplicate, context.time_zone)
            index.fill(index.layout.updates(committed), time)
            built.append(index)
        return built

    if added:
        built = await blocking.run(context.coordinator.executor, check)
        table = context.transaction.altered(id)
        indexes = {**table.indexes, **{each.constraint.name: each for each in built}}
        context.transaction.stage_altered(id, replace(table, indexes=indexes))


def together(committed: pa.Table, own: list[pa.Table], desc: RelationDesc) -> pa.Table:
    """Return committed rows and a transaction's own ones, consolidated; all have `__diff`."""
    if not own:
        return committed
    schema = committed.schema
    parts = [pa.Table.from_arrays(part.columns, schema=schema) for part in own]
    updates = at_time(pa.concat_tables([committed, *parts]), 0)
    return consolidate(updates, desc.stored_schema(), 0).drop_columns([TIME])
