"""Bind WATERMARK FOR column AS column - INTERVAL 'delay', of a table or a relation of a source."""

from collections.abc import Sequence

from foreshore.errors import (
    DataError,
    DatatypeMismatch,
    DependentObjectsStillExist,
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedColumn,
)
from foreshore.interval_text import parse_interval
from foreshore.sql import ast
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.planning import located
from foreshore.text import format_text
from foreshore.types import INTERVAL, ColumnType, Watermark, format_type

_TIMES = ("timestamp", "timestamptz")
_DAY = 86_400_000_000
_MOST = (1 << 31) * 3_600_000_000 - 1  # of an interval written in hours


def bound_watermark(
    definition: ast.WatermarkDefinition | None,
    names: Sequence[str],
    columns: Sequence[ColumnType],
) -> Watermark | None:
    """Return the watermark of a relation with these columns; raises an error if it cannot be."""
    if definition is None:
        return None
    with located(definition.at):
        if definition.column not in names:
            raise UndefinedColumn(f'column "{definition.column}" does not exist')
        place = names.index(definition.column)
        type = columns[place].type
        if type.name not in _TIMES:
            raise DatatypeMismatch(
                f'the column "{definition.column}" of a watermark must be of type timestamp or '
                f"timestamp with time zone, not {format_type(type)}"
            )
        return Watermark(place, watermark_delay(definition))


def watermark_delay(definition: ast.WatermarkDefinition) -> int:
    """Return the delay in microseconds; raises an error if it is negative or in months."""
    if definition.delay is None:
        return 0
    months, days, micros = parse_interval(definition.delay)
    total = days * _DAY + micros
    if months:
        raise FeatureNotSupported("the delay of a watermark cannot have months or years")
    if total > _MOST:
        text = definition.delay
        raise DataError(f'interval field value out of range: "{text}"', sqlstate="22015")
    if total < 0:
        raise InvalidParameterValue("the delay of a watermark must not be negative")
    return total


def source_watermark(definition: ast.WatermarkDefinition | None) -> str | None:
    """Return the definition of a watermark of a source, whose columns are not known yet."""
    if definition is None:
        return None
    with located(definition.at):
        return watermark_text(Watermark(0, watermark_delay(definition)), (definition.column,))


def watermark_text(watermark: Watermark, names: Sequence[str]) -> str:
    """Return the definition of a watermark as it is kept."""
    name = quote_identifier(names[watermark.column])
    text = f"WATERMARK FOR {name} AS {name}"
    if watermark.delay:
        text += f" - INTERVAL '{format_text((0, 0, watermark.delay), INTERVAL)}'"
    return text


def refuse_watermarked(
    definition: ast.WatermarkDefinition | None, column: str, change: str
) -> None:
    """Raise an error if a watermark is computed from `column`, which is to be changed."""
    if definition is not None and definition.column == column:
        raise DependentObjectsStillExist(
            f'cannot {change} column "{column}" because the watermark of its table is computed'
            " from it",
            hint="Create a new table.",
        )
