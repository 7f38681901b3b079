"""Bind WATERMARK FOR column AS column - INTERVAL 'delay', of a table or a relation of a source."""

from collections.abc import Sequence

from foreshore.errors import (
    DataError,
    DatatypeMismatch,
    DependentObjectsStillExist,
    FeatureNotSupported,
    InvalidParameterValue,
    SyntaxError_,
    UndefinedColumn,
)
from foreshore.ids import GlobalId
from foreshore.interval_text import parse_interval
from foreshore.sql import ast
from foreshore.sql.bind.planning import located
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.text import format_text
from foreshore.types import INTERVAL, ColumnType, Watermark, format_type

_TIMES = ("timestamp", "timestamptz")
_DAY = 86_400_000_000
_LEAST_TIMEOUT = 1_000_000
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
        marks = None if definition.marks is None else GlobalId(definition.marks)
        return Watermark(place, watermark_delay(definition), _timeout(definition), marks)


def watermark_delay(definition: ast.WatermarkDefinition) -> int:
    """Return the delay in microseconds; raises an error if it is negative or in months."""
    if definition.delay is None:
        return 0
    total = _micros(definition.delay, "delay")
    if total < 0:
        raise InvalidParameterValue("the delay of a watermark must not be negative")
    return total


def _timeout(definition: ast.WatermarkDefinition) -> int | None:
    """Return the timeout in microseconds, None without one; raises an error below a second."""
    if definition.idle is None:
        return None
    total = _micros(definition.idle, "IDLE TIMEOUT")
    if total < _LEAST_TIMEOUT:
        raise InvalidParameterValue("the IDLE TIMEOUT of a watermark must be at least a second")
    return total


def _micros(text: str, of: str) -> int:
    months, days, micros = parse_interval(text)
    total = days * _DAY + micros
    if months:
        raise FeatureNotSupported(f"the {of} of a watermark cannot have months or years")
    if total > _MOST:
        raise DataError(f'interval field value out of range: "{text}"', sqlstate="22015")
    return total


def source_watermark(definition: ast.WatermarkDefinition | None) -> str | None:
    """Return the definition of a watermark of a source, whose columns are not known yet."""
    if definition is None:
        return None
    with located(definition.at):
        watermark = Watermark(0, watermark_delay(definition), _timeout(definition))
        return watermark_text(watermark, (definition.column,))


def check_idle_timeout(
    definition: ast.WatermarkDefinition | None, *, temporary: bool, defined: bool
) -> None:
    """Raise an error for a temporary table's timeout, and for marks that a client names."""
    if definition is None or definition.idle is None:
        return
    if temporary:
        raise FeatureNotSupported("the watermark of a temporary table has no IDLE TIMEOUT")
    if definition.marks is not None and not defined:
        raise SyntaxError_('syntax error at or near "MARKS"', position=definition.at + 1)


def watermark_text(watermark: Watermark, names: Sequence[str], *, shown: bool = False) -> str:
    """Return the definition of a watermark as it is kept, or as it is `shown`."""
    name = quote_identifier(names[watermark.column])
    text = f"WATERMARK FOR {name} AS {name}"
    if watermark.delay:
        text += f" - INTERVAL '{format_text((0, 0, watermark.delay), INTERVAL)}'"
    if watermark.idle is not None:
        text += f" IDLE TIMEOUT INTERVAL '{format_text((0, 0, watermark.idle), INTERVAL)}'"
        if watermark.marks is not None and not shown:
            text += f" MARKS '{watermark.marks}'"
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
