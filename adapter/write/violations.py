"""Errors of broken constraints, in PostgreSQL's words and fields."""

from collections.abc import Sequence

import pyarrow as pa

from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.compute.keys.key_index import Duplicate
from foreshore.constraint import Check
from foreshore.errors import (
    CheckViolation,
    IntegrityConstraintViolation,
    NotNullViolation,
    Subject,
    UniqueViolation,
)
from foreshore.expr.datum import from_array
from foreshore.output_style import OutputStyle
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.text import format_text
from foreshore.types import Datum, RelationDesc, SqlType


def _about(state: State, table: Item, subject: Subject, name: str) -> dict[Subject, str]:
    return {"schema": state.objects[table.schema].name, "table": table.name, subject: name}


def _shown(datum: Datum, type: SqlType, zone: str) -> str:
    return "null" if datum is None else format_text(datum, type, OutputStyle(zone))


def failing_row(columns: Sequence[pa.Array], desc: RelationDesc, row: int, zone: str) -> str:
    """Return the detail that shows a refused row."""
    shown = ", ".join(
        _shown(from_array(values.slice(row, 1), column.type)[0], column.type, zone)
        for values, column in zip(columns, desc.columns, strict=True)
    )
    return f"Failing row contains ({shown})."


def null_in(state: State, table: Item, column: str, detail: str) -> NotNullViolation:
    """Return the error of a NULL in a NOT NULL column."""
    return NotNullViolation(
        f'null value in column "{column}" of relation "{table.name}" violates not-null constraint',
        detail=detail,
        about=_about(state, table, "column", column),
    )


def check_fails(
    state: State, table: Item, check: Check, detail: str
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


def _key(duplicate: Duplicate, desc: RelationDesc, zone: str) -> str:
    places = duplicate.constraint.columns
    names = ", ".join(quote_identifier(desc.names[i]) for i in places)
    shown = ", ".join(
        _shown(datum, desc.columns[i].type, zone)
        for datum, i in zip(duplicate.key, places, strict=True)
    )
    return f"Key ({names})=({shown})"


def key_exists(
    state: State, desc: RelationDesc, duplicate: Duplicate, zone: str
) -> UniqueViolation:
    """Return the error of inserting an existing key."""
    name = duplicate.constraint.name
    return UniqueViolation(
        f'duplicate key value violates unique constraint "{name}"',
        detail=f"{_key(duplicate, desc, zone)} already exists.",
        about=_about(state, state.item(duplicate.table), "constraint", name),
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
