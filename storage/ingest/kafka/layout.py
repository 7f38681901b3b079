"""Which column of a relation has what of a message."""

from collections.abc import Sequence

import msgspec

from foreshore.errors import DuplicateColumn, FeatureNotSupported
from foreshore.sources.kafka import Include, Messages
from foreshore.sources.outputs import Column, Output
from foreshore.storage.ingest.formats.schemas import Resolved

_INCLUDED = {
    "partition": Column("partition", "int4", False),
    "offset": Column("offset", "int8", False),
    "timestamp": Column("timestamp", "timestamp"),
    "headers": Column("headers", "jsonb", False),
    "header": Column("header", "text"),
}


class Layout(msgspec.Struct, frozen=True):
    """The places of the columns of keys, values, errors and what is included.

    Columns that a key has in common with its value are there once, with the key's. `topic_id` is
    that of the topic when the relation was made, if it has one.
    """

    value: Resolved
    value_at: tuple[int, ...]
    key: Resolved | None = None
    key_at: tuple[int, ...] = ()
    error_at: int | None = None
    includes_at: tuple[int, ...] = ()
    topic_id: str | None = None


def laid_out(spec: Messages, value: Resolved, key: Resolved | None, topic_id: str | None) -> Output:
    """Return the output of messages, whose details are its layout.

    Raises DuplicateColumn if two columns would have one name.
    """
    keys, is_renamed = () if key is None else key.columns, False
    if spec.key_name is not None:
        if len(keys) > 1:
            raise FeatureNotSupported(
                "INCLUDE KEY AS is supported for keys of a single column only",
                hint="INCLUDE KEY without AS gives each field of the key a column of its name.",
            )
        is_renamed = any(each.name != spec.key_name for each in keys)
        keys = tuple(msgspec.structs.replace(each, name=spec.key_name) for each in keys)
    columns: list[Column] = []
    by_name = {each.name: each for each in value.columns}
    is_unique = spec.envelope != "none"
    for each in keys:
        is_another = is_renamed and each.name in by_name  # than the value's field of the name
        if is_another or not (is_unique and by_name.get(each.name, each).type == each.type):
            columns.append(each)
        elif each.name not in by_name:
            columns.append(Column(each.name, each.type, nullable=False))
    begins = len(columns)
    names = {each.name for each in keys} if is_unique else set()
    for each in value.columns:
        nullable = each.nullable or spec.errors_column is not None
        columns.append(Column(each.name, each.type, nullable and each.name not in names))
    value_at = tuple(range(begins, len(columns)))
    error_at = None
    if spec.errors_column is not None:
        error_at = len(columns)
        columns.append(Column(spec.errors_column, "text"))
    included = [_included(each) for each in spec.includes]
    includes_at = tuple(range(len(columns), len(columns) + len(included)))
    columns += included
    _check(columns)
    places = {each.name: at for at, each in enumerate(columns)}
    key_at = tuple(places[each.name] for each in keys)
    layout = Layout(value, value_at, key, key_at, error_at, includes_at, topic_id)
    unique = tuple(each.name for each in keys) if is_unique else ()
    return Output(tuple(columns), unique, msgspec.json.encode(layout).decode())


def _included(include: Include) -> Column:
    column = _INCLUDED[include.what]
    type = "bytea" if include.is_bytes else column.type
    return Column(include.name, type, column.nullable)


def _check(columns: Sequence[Column]) -> None:
    seen = set()
    for each in columns:
        if each.name in seen:
            raise DuplicateColumn(
                f'the source would have two columns "{each.name}"',
                hint="Give the key or what is included another name with AS.",
            )
        seen.add(each.name)
