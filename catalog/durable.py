"""The catalog's shard: encodes objects as rows, and versions as differences of rows.

A row is (collection, id, value). The value is the object as JSON, so any tool that reads the shard
can read the catalog. The row `("format", "", "1")` names the encoding; `migrate` upgrades an older
one before anything is decoded. Within an encoding, `upgrade` changes values of older versions as
they are decoded. A row stays as an older version wrote it until its object changes.
Counters of allotted ids are rows as well. Temporary objects have no rows, because they end with the
process at the latest.

The positions of subscriptions and what dropped objects have left elsewhere (`leftovers.py`) are
rows too, but belong to no version of the catalog: no plan depends on them. Since they are in the
same log as the data, they are never ahead of it or behind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from foreshore.catalog.bootstrap import opened_to_all, public_schemas
from foreshore.catalog.item import OBJECTS, Item, Object, Schema
from foreshore.catalog.leftovers import Leftover
from foreshore.catalog.state import State, empty, is_system, with_allotted, with_objects
from foreshore.catalog.upgrade import upgraded
from foreshore.errors import DataCorrupted, ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.storage.capability import ReadCapability
from foreshore.storage.controller import StorageController
from foreshore.update import DIFF, TIME, Timestamp, update_schema

CATALOG_SHARD = GlobalId("s1")
FORMAT = 1
POSITION = "position"
LEFTOVER = "leftover"

ROW_SCHEMA = pa.schema(
    [
        pa.field("collection", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
    ]
)

Row = tuple[str, str, str]
T = TypeVar("T")

_TYPES = {type.collection: type for type in OBJECTS}


class Position(msgspec.Struct, frozen=True):
    """The position of a subscription: its consumer has all changes before `reached`.

    Initially, `reached` is the time when the subscription `began`, and the consumer has nothing.
    """

    began: Timestamp
    reached: Timestamp

    @property
    def confirmed(self) -> bool:
        """Whether the consumer has received the collection's initial contents."""
        return self.reached > self.began

    @property
    def as_of(self) -> Timestamp:
        """Return the time as of which the changes begin; storage keeps it readable."""
        return max(self.began, self.reached - 1)


def rows_of(state: State, ids: Iterable[str] | None = None) -> set[Row]:
    """Return the rows of `state`; with `ids`, of the objects only those with these."""
    rows = {("format", "", str(FORMAT))}
    rows.update(("allotted", space, str(number)) for space, number in state.allotted.items())
    rows.update(
        (each.collection, id, _value_of(state, each))
        for id in (state.objects if ids is None else ids)
        if (each := state.get(id)) is not None and _is_durable(each)
    )
    return rows


def _value_of(state: State, each: Object) -> str:
    """Return the value of the object's row, as it is in the shard if that was read."""
    read, value = state.as_read.get(each.id, (None, ""))
    return value if read is each else _encoded(each)


def _encoded(each: Object) -> str:
    return msgspec.json.encode(each).decode()


def _is_durable(each: Object) -> bool:
    return not is_system(each.id) and not (isinstance(each, Schema | Item) and each.temporary)


def difference(old: State | None, new: State, time: Timestamp) -> pa.Table:
    """Return the updates at `time` that turn the rows of `old` (None: no rows) into `new`'s."""
    if old is None:
        return _updates(set(), rows_of(new), time)
    changed = new.changed(old)
    before, after = rows_of(old, changed), rows_of(new, changed)
    return _updates(before - after, after - before, time)


def moved(
    old: Mapping[GlobalId, Position], new: Mapping[GlobalId, Position], time: Timestamp
) -> pa.Table:
    """Return the updates at `time` that move subscriptions to their `new` positions."""
    before, after = (
        {_row(POSITION, id, each) for id, each in positions.items()} for positions in (old, new)
    )
    return _updates(before - after, after - before, time)


def left(
    more: Iterable[Leftover], time: Timestamp, *, without: Iterable[Leftover] = ()
) -> pa.Table:
    """Return the updates at `time` that add leftovers, and remove others."""
    gone, come = ({_row(LEFTOVER, each.id, each) for each in some} for some in (without, more))
    return _updates(gone, come, time)


def _row(collection: str, id: GlobalId, each: msgspec.Struct) -> Row:
    return (collection, str(id), msgspec.json.encode(each).decode())


def _updates(without: set[Row], more: set[Row], time: Timestamp) -> pa.Table:
    gone, come = sorted(without), sorted(more)
    rows = [*gone, *come]
    columns = [[row[i] for row in rows] for i in range(3)]
    return pa.table(
        {
            "collection": pa.array(columns[0], pa.string()),
            "id": pa.array(columns[1], pa.string()),
            "value": pa.array(columns[2], pa.string()),
            TIME: pa.array([time] * len(rows), pa.int64()),
            DIFF: pa.array([-1] * len(gone) + [1] * len(come), pa.int64()),
        },
        schema=update_schema(ROW_SCHEMA),
    )


class Stored(NamedTuple):
    """The contents of the catalog's shard: the state, None if there is none yet, and the rest.

    There may be positions of dropped subscriptions.
    """

    state: State | None
    positions: Mapping[GlobalId, Position]
    leftovers: Mapping[GlobalId, Leftover]


async def read_catalog(storage: StorageController, read: ReadCapability) -> Stored:
    """Return what the catalog's shard has."""
    upper = storage.upper(CATALOG_SHARD)
    if upper == 0:
        return Stored(None, {}, {})
    with storage.snapshot(read, upper - 1) as snapshot:
        rows = [await snapshot.rows()]
    live = _live(rows)
    return Stored(
        load(rows), _structs(live, POSITION, Position), _structs(live, LEFTOVER, Leftover)
    )


def _structs(live: set[Row], wanted: str, type: type[T]) -> dict[GlobalId, T]:
    return {
        GlobalId(id): _decoded(collection, id, value, type)
        for collection, id, value in live
        if collection == wanted
    }


def _live(updates: Iterable[pa.Table]) -> set[Row]:
    """Return the rows that the updates add up to."""
    rows: dict[Row, int] = {}
    for table in updates:
        columns = [table.column(name).to_pylist() for name in ("collection", "id", "value", DIFF)]
        for collection, id, value, diff in zip(*columns, strict=True):
            row = (collection, id, value)
            rows[row] = rows.get(row, 0) + diff
    for row, count in rows.items():
        if count not in (0, 1):
            raise DataCorrupted(f"the catalog holds {row[0]} {row[1]} {count} times")
    return migrate({row for row, count in rows.items() if count})


def load(updates: Iterable[pa.Table]) -> State | None:
    """Return the state that the shard's updates add up to; None if there are none."""
    live = _live(updates)
    if not live:
        return None
    state = empty()
    objects: dict[str, Object | None] = {}
    as_read: dict[str, tuple[Object, str]] = {}
    for collection, id, value in live:
        if collection == "allotted":
            state = with_allotted(state, id, int(value))
        elif collection not in ("format", POSITION, LEFTOVER):
            if id in objects:
                raise DataCorrupted(f"the catalog holds two versions of {collection} {id}")
            if collection not in _TYPES:
                raise DataCorrupted(f"the catalog's row {collection} {id} is of no known kind")
            each: Object = opened_to_all(_decoded(collection, id, value, _TYPES[collection]))
            objects[id] = each
            if _encoded(each) != value:
                as_read[id] = (each, value)
    for schema in public_schemas(objects.values()):
        (value,) = (value for _, id, value in live if id == schema.id)
        objects[schema.id] = schema
        as_read[schema.id] = (schema, value)
    state = replace(state, as_read=as_read)
    return with_objects(state, dict(sorted(objects.items(), key=lambda pair: _age(pair[0]))))


def migrate(rows: set[Row]) -> set[Row]:
    """Return `rows` in the current encoding; reject those of a newer version."""
    for collection, _, value in rows:
        if collection == "format" and int(value) > FORMAT:
            raise ObjectNotInPrerequisiteState(
                f"the catalog has format {value}, this version reads up to {FORMAT}",
                hint="A later version wrote this directory: start that, or restore a backup.",
            )
    return rows


def _decoded(collection: str, id: str, value: str, type: type[T]) -> T:
    try:
        return msgspec.json.decode(upgraded(collection, value), type=type)
    except msgspec.MsgspecError as error:
        raise DataCorrupted(
            f"the catalog's row {collection} {id} is not readable: {error}"
        ) from None


def _age(id: str) -> tuple[str, int]:
    return (id[0], int(id[1:]))
