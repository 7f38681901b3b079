"""Frames of windows as SQL, and distances from the value of the order's key."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.compute.render.dialect import Dialect
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Frame, FrameBound, OrderKey, Window
from foreshore.types import Datum

_INTEGERS = ("int2", "int4", "int8")
MOST = 1 << 62  # more rows than possible


def offset_value(bound: FrameBound) -> Datum:
    """Return the value of a bound's offset, 0 if it has none; None if it fails."""
    if bound.offset is None:
        return 0
    found = constant(bound.offset)
    return None if isinstance(found, str) else found.value


def count_of(bound: FrameBound) -> int:
    """Return the number of rows or groups to a bound; 0 if it fails, which is an error anyway."""
    value = offset_value(bound)
    return min(value, MOST) if isinstance(value, int) else 0


def frame_sql(frame: Frame, edges: "Edges | None") -> str:
    """Return the frame clause of an OVER."""

    def bound(end: FrameBound | None, otherwise: str) -> str:
        if end is None:
            return f"UNBOUNDED {otherwise}"
        if end.offset is None:
            return "CURRENT ROW"
        offset = str(count_of(end)) if edges is None else edges.distance(end)
        return f"{offset} {end.side.upper()}"

    start, end = bound(frame.start, "PRECEDING"), bound(frame.end, "FOLLOWING")
    exclude = "" if frame.exclude == "nothing" else f" EXCLUDE {frame.exclude.upper()}"
    return f"{frame.unit.upper()} BETWEEN {start} AND {end}{exclude}"


@dataclass(frozen=True, slots=True)
class Edges:
    """The ends of a frame at distances from the value of its order's only key.

    The key and the distances have a type in which their sums do not overflow.
    """

    dialect: Dialect
    order: OrderKey
    type: str  # of the key, as the engine's
    offset: str  # of the distances

    @classmethod
    def of(cls, dialect: Dialect, window: Window, frame: Frame) -> "Edges | None":
        """Return the edges of a frame, None if it has no distances."""
        bounds = [end for end in (frame.start, frame.end) if end is not None and end.offset]
        if frame.unit != "range" or not bounds:
            return None
        (order,) = window.order_key
        type = type_of(order.expr)
        if type.name in _INTEGERS or type.name == "interval":
            shown = offset = "DECIMAL(38, 0)"
        elif type.name == "numeric":
            scales = [type_of(end.offset).scale or 0 for end in bounds if end.offset]
            shown = offset = f"DECIMAL(38, {max(type.scale or 0, *scales)})"
        elif type.name in ("float4", "float8"):
            shown = offset = "DOUBLE"
        else:
            shown, offset = "TIMESTAMP", "INTERVAL"
        return cls(dialect, order, shown, offset)

    def key(self, columns: Sequence[str]) -> str:
        """Return the key over a row."""
        key = self.order.expr
        sql = self.dialect.key(self.dialect.scalar(key, columns), type_of(key))
        if type_of(key).name == "time":
            return self.dialect.moment_of_time(sql)
        return f"CAST({sql} AS {self.type})"

    def distance(self, bound: FrameBound) -> str:
        """Return the distance to a bound."""
        value = offset_value(bound)
        if self.offset == "INTERVAL":
            assert value is None or isinstance(value, tuple), value
            return self.dialect.native_interval(*(value or (0, 0, 0)))
        if isinstance(value, tuple):
            months, days, micros = value
            value = (months * 30 + days) * 86_400_000_000 + micros
        assert value is None or isinstance(value, int | float | str), value
        return f"CAST('{value or 0}' AS {self.offset})"

    def is_infinite(self, bound: FrameBound) -> bool:
        """Return whether the distance to a bound is infinite."""
        value = offset_value(bound)
        return isinstance(value, float) and math.isinf(value)

    def within(
        self, bound: FrameBound, here: str, there: str, otherwise: str, *, is_start: bool
    ) -> str:
        """Return whether the key `there` is within a bound of the row with the key `here`.

        `otherwise` is the condition if one of the keys is NULL.
        """
        ahead = (bound.side == "following") != self.order.descending
        sign = "+" if ahead else "-"
        compare = ">=" if is_start != self.order.descending else "<="
        near = f"{there} {compare} {here} {sign} {self.distance(bound)}"
        if self.is_infinite(bound):  # a distance from infinity that would not be a number
            endless = f"CAST('{'-' if ahead else ''}inf' AS DOUBLE)"
            finite = f"{there} <> CAST('nan' AS DOUBLE)"
            near = f"CASE WHEN {here} = {endless} THEN {finite} ELSE {near} END"
        return f"CASE WHEN {here} IS NULL OR {there} IS NULL THEN {otherwise} ELSE {near} END"
