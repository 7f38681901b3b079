"""Errors of broken constraints, in PostgreSQL's words and fields."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from foreshore.adapter.transaction.watermarks import LateRow
from foreshore.catalog.item import Item, Role
from foreshore.catalog.rights import holds_on_columns
from foreshore.catalog.row_security import is_subject
from foreshore.catalog.state import State
from foreshore.compute.keys.key_index import Duplicate
from foreshore.compute.keys.references import Reference
from foreshore.constraint import Check
from foreshore.datum import from_array
from foreshore.errors import (
    CheckViolation,
    ForeignKeyViolation,
    IntegrityConstraintViolation,
    NotNullViolation,
    Subject,
    UniqueViolation,
)
from foreshore.foreign_key import ForeignKey
from foreshore.output_style import OutputStyle
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.text import format_text
from foreshore.types import Datum, RelationDesc, SqlType, arrow_type


def _about(state: State, table: Item, subject: Subject, name: str) -> dict[Subject, str]:
    return {"schema": state.objects[table.schema].name, "table": table.name, subject: name}


def _shown(datum: Datum, type: SqlType, zone: str) -> str:
    return "null" if datum is None else format_text(datum, type, OutputStyle(zone))


class Viewer(NamedTuple):
    """Who gets an error: the time zone in which it shows times, and the role that may see values.

    Without a role nothing is withheld.
    """

    zone: str = "UTC"
    role: Role | None = None

    def sees(self, state: State, table: Item, places: Iterable[int]) -> bool:
        """Return whether columns of a table, by their positions, may be shown."""
        if self.role is None or self.role.superuser:
            return True
        if is_subject(state, table, self.role):
            return False
        return holds_on_columns(state, self.role, table, "SELECT", [at + 1 for at in places])


def failing_row(
    state: State,
    table: Item,
    columns: Sequence[pa.Array],
    desc: RelationDesc,
    row: int,
    viewer: Viewer,
) -> str | None:
    """Return the detail that shows a refused row, as far as it may be shown."""
    seen = [i for i in range(len(columns)) if viewer.sees(state, table, (i,))]
    if not seen:
        return None
    shown = ", ".join(
        _shown(
            from_array(columns[i].slice(row, 1), desc.columns[i].type)[0],
            desc.columns[i].type,
            viewer.zone,
        )
        for i in seen
    )
    if len(seen) < len(columns):
        names = ", ".join(quote_identifier(desc.names[i]) for i in seen)
        return f"Failing row contains ({names}) = ({shown})."
    return f"Failing row contains ({shown})."


def null_in(state: State, table: Item, column: str, detail: str | None) -> NotNullViolation:
    """Return the error of a NULL in a NOT NULL column."""
    return NotNullViolation(
        f'null value in column "{column}" of relation "{table.name}" violates not-null constraint',
        detail=detail,
        about=_about(state, table, "column", column),
    )


def check_fails(
    state: State, table: Item, check: Check, detail: str | None
) -> IntegrityConstraintViolation:
    """Return the error of a row for which a CHECK is FALSE."""
    if check.domain and not check.name:
        return NotNullViolation(f"domain {check.domain} does not allow null values")
    if check.domain:
        return CheckViolation(
            f'value for domain {check.domain} violates check constraint "{check.name}"'
        )
    return CheckViolation(
        f'new row for relation "{table.name}" violates check constraint "{check.name}"',
        detail=detail,
        about=_about(state, table, "constraint", check.name),
    )


def nulls_there(state: State, table: Item, column: str) -> NotNullViolation:
    """Return the error of SET NOT NULL on a column that has NULLs."""
    return NotNullViolation(
        f'column "{column}" of relation "{table.name}" contains null values',
        about=_about(state, table, "column", column),
    )


def check_is_violated(state: State, table: Item, check: Check) -> CheckViolation:
    """Return the error of adding a CHECK that some row violates."""
    return CheckViolation(
        f'check constraint "{check.name}" of relation "{table.name}" is violated by some row',
        about=_about(state, table, "constraint", check.name),
    )


def match_full_nulls(state: State, table: Item, key: ForeignKey) -> ForeignKeyViolation:
    """Return the error of a row of MATCH FULL with a NULL beside another value."""
    return ForeignKeyViolation(
        f'insert or update on table "{table.name}" violates foreign key constraint "{key.name}"',
        detail="MATCH FULL does not allow mixing of null and nonnull key values.",
        about=_about(state, table, "constraint", key.name),
    )


def not_present(
    state: State, reference: Reference, columns: Sequence[pa.Array], place: int, viewer: Viewer
) -> ForeignKeyViolation:
    """Return the error of a row that refers to a missing key: that at `place` of `columns`.

    The columns are in the order of the key, with the types of either table.
    """
    table, key = state.item(reference.child), reference.key
    shown = " "
    if viewer.sees(state, table, reference.columns):
        columns_ = _in_order(state, reference, columns)
        shown = f" {_shown_key(key.columns, columns_, place, viewer.zone)} "
    parent = state.item(reference.parent).name
    return ForeignKeyViolation(
        f'insert or update on table "{table.name}" violates foreign key constraint "{key.name}"',
        detail=f'Key{shown}is not present in table "{parent}".',
        about=_about(state, table, "constraint", key.name),
    )


def still_referenced(
    state: State, reference: Reference, columns: Sequence[pa.Array], place: int, viewer: Viewer
) -> ForeignKeyViolation:
    """Return the error of changing the key at `place` of `columns`, to which rows refer."""
    table, key = state.item(reference.child), reference.key
    shown, owner = " ", state.item(reference.parent)
    parent = owner.name
    if viewer.sees(state, owner, reference.constraint.columns):
        columns_ = _in_order(state, reference, columns)
        shown = f" {_shown_key(key.referenced, columns_, place, viewer.zone)} "
    return ForeignKeyViolation(
        f'update or delete on table "{parent}" violates foreign key constraint "{key.name}" '
        f'on table "{table.name}"',
        detail=f'Key{shown}is still referenced from table "{table.name}".',
        about=_about(state, table, "constraint", key.name),
    )


_Typed = Sequence[tuple[pa.Array, SqlType]]


def _in_order(state: State, reference: Reference, columns: Sequence[pa.Array]) -> _Typed:
    """Return the columns of a key in the order of the foreign key, with their types."""
    given = columns[0].type == arrow_type(reference.types[0])
    types = reference.types if given else reference.key_types
    return [(columns[at], types[at]) for at in reference.order]


def _shown_key(names: Sequence[str], columns: _Typed, place: int, zone: str) -> str:
    values = [
        _shown(from_array(column.slice(place, 1), type)[0], type, zone) for column, type in columns
    ]
    return f"({', '.join(map(quote_identifier, names))})=({', '.join(values)})"


def _key(duplicate: Duplicate, desc: RelationDesc, zone: str) -> str:
    places = duplicate.constraint.columns
    names = ", ".join(quote_identifier(desc.names[i]) for i in places)
    shown = ", ".join(
        _shown(datum, desc.columns[i].type, zone)
        for datum, i in zip(duplicate.key, places, strict=True)
    )
    return f"Key ({names})=({shown})"


def key_exists(
    state: State, desc: RelationDesc, duplicate: Duplicate, viewer: Viewer
) -> UniqueViolation:
    """Return the error of inserting an existing key."""
    name, table = duplicate.constraint.name, state.item(duplicate.table)
    seen = viewer.sees(state, table, duplicate.constraint.columns)
    return UniqueViolation(
        f'duplicate key value violates unique constraint "{name}"',
        detail=f"{_key(duplicate, desc, viewer.zone)} already exists." if seen else None,
        about=_about(state, table, "constraint", name),
    )


def below_watermark(
    state: State, desc: RelationDesc | None, late: LateRow, viewer: Viewer
) -> CheckViolation:
    """Return the error of a late row; without `desc` it is of a table that is created with it."""
    message, detail = "new row is below the watermark", None
    if desc is not None:
        message += f' of column "{desc.names[late.column]}"'
        if viewer.sees(state, state.item(late.table), (late.column,)):
            time, now = (
                _shown(each, desc.columns[late.column].type, viewer.zone)
                for each in (late.time, late.watermark)
            )
            detail = f"Its time is {time}, and the watermark is {now}."
    return CheckViolation(
        message,
        detail=detail,
        hint="Results of closed windows do not change. With a greater delay of the watermark they"
        " are open for longer.",
    )


def key_is_there_twice(
    state: State, desc: RelationDesc, duplicate: Duplicate, zone: str
) -> UniqueViolation:
    """Return the error of adding a key that two rows have."""
    name = duplicate.constraint.name
    return UniqueViolation(
        f'could not create unique index "{name}"',
        detail=f"{_key(duplicate, desc, zone)} is duplicated.",
        about=_about(state, state.item(duplicate.table), "constraint", name),
    )
