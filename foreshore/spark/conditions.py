"""Conditions on single columns, which skip row groups of Parquet files by their statistics.

A condition keeps every row for which it is true, and no other. Floats are left out: their
statistics omit NaN, and engines disagree about it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Operator = Literal["=", "<", "<=", ">", ">=", "in", "null", "not null"]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MAY_HOLD: dict[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda low, high, value: bool(low <= value <= high),
    "<": lambda low, high, value: bool(low < value),
    "<=": lambda low, high, value: bool(low <= value),
    ">": lambda low, high, value: bool(high > value),
    ">=": lambda low, high, value: bool(high >= value),
    "in": lambda low, high, value: any(low <= each <= high for each in value),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with a value, or for "in" with values, none of them NULL."""

    column: int
    name: str
    operator: Operator
    value: Any = None

    def holds(self, array: pa.Array) -> pa.Array:
        """Return for each value whether the condition is true."""
        match self.operator:
            case "null":
                return pc.is_null(array)
            case "not null":
                return pc.is_valid(array)
            case "in":
                return pc.is_in(array, pa.array(list(self.value), array.type))
            case _:
                found = _COMPARE[self.operator](array, pa.scalar(self.value, array.type))
                return pc.fill_null(found, False)


def is_comparable(type: pa.DataType, value: Any) -> bool:
    """Whether conditions on a column of the type mean the same to Arrow and to its statistics."""
    if pa.types.is_integer(type):
        return isinstance(value, int) and not isinstance(value, bool)
    if pa.types.is_string(type):
        return isinstance(value, str)
    return False


def may_hold(file: pq.ParquetFile, group: int, conditions: Sequence[Condition]) -> bool:
    """Whether a row group may have a row for which all conditions are true."""
    metadata = file.metadata.row_group(group)
    for leaf in range(metadata.num_columns) if conditions else ():
        column = metadata.column(leaf)
        statistics = column.statistics
        if statistics is None or file.schema.column(leaf).name != column.path_in_schema:
            continue
        for condition in conditions:
            if condition.name != column.path_in_schema:
                continue
            if condition.operator == "null":
                if statistics.has_null_count and statistics.null_count == 0:
                    return False
            elif condition.operator == "not null":
                if statistics.has_null_count and statistics.null_count == metadata.num_rows:
                    return False
            elif statistics.has_min_max and not _MAY_HOLD[condition.operator](
                statistics.min, statistics.max, condition.value
            ):
                return False
    return True
