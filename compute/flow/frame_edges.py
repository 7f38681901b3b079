"""Frames by RANGE with an offset: the edges of each row's frame among the values of the key.

The key and its sums with the offsets are computed with the functions' arguments. Where a sum is
out of range it is NULL, and the edge is beyond all values.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from foreshore.compute.flow.batch import Ints
from foreshore.compute.flow.frame_values import Rows
from foreshore.compute.flow.kernels.frames import find_edges
from foreshore.compute.flow.layout import Place
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.render.frames import offset_value
from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import resolve, resolve_cast
from foreshore.expr.ir import Call, FrameBound, Literal, Scalar, Window
from foreshore.types import FLOAT8, INT8, TIMESTAMP, SqlType

_WIDER = {
    "int2": INT8, "int4": INT8, "int8": INT8, "float4": FLOAT8, "float8": FLOAT8, "date": TIMESTAMP,
}  # fmt: skip


class Edges:
    """The key of a window's order and its sums with offsets, as scalars over the input."""

    def __init__(self, window: Window, places: Sequence[Place] = ()) -> None:
        bounds = (
            bound
            for function in window.functions
            if function.frame.unit == "range"
            for bound in (function.frame.start, function.frame.end)
            if bound is not None and bound.offset is not None
        )
        self._window = window
        self._bounds = tuple(dict.fromkeys(bounds))
        self._places = tuple(places)
        self.scalars: tuple[Scalar, ...] = ()
        if self._bounds:
            order = window.order_key[0]
            self._descending = order.descending
            key = _widened(order.expr)
            self.scalars = (key, *(self._sum(key, bound) for bound in self._bounds))

    def placed(self, places: Sequence[Place]) -> "Edges":
        """Return the edges with the places of the scalars in the rows of arguments."""
        return Edges(self._window, places)

    def _sum(self, key: Scalar, bound: FrameBound) -> Scalar:
        assert bound.offset is not None
        value = offset_value(bound)
        if isinstance(value, float) and math.isinf(value):
            raise Unsupported("an infinite offset of a frame")
        offset = Literal(value, type_of(bound.offset))
        operator = "+" if (bound.side == "following") != self._descending else "-"
        found = resolve(operator, (type_of(key), offset.type), (None, value))
        args = (key, offset)
        if found.arg_types != tuple(map(type_of, args)):
            raise Unsupported(f"a frame by distances from {type_of(key)}")
        return Call(found.key, args, found.result)

    def rows_at(self, rows: Rows, bound: FrameBound, is_start: bool) -> Ints:
        """Return the first row of each row's frame, or the one after its last."""
        place, *others = self._places
        edge = others[self._bounds.index(bound)]
        scale = max(_scale(place.type), _scale(edge.type))
        keys, edges = (_numbers(rows, each, scale) for each in (place, edge))
        if self._descending:
            keys, edges = ~keys, ~edges
        partitions = rows.partitions
        found = partitions.first_peer.copy() if is_start else partitions.after_peers.copy()
        null, endless = rows.null(place), rows.null(edge)
        if keys.dtype == object:  # the ranks of integers have their order
            ranks = np.unique(np.concatenate([keys, edges]), return_inverse=True)[1]
            keys, edges = ranks[: len(keys)], ranks[len(keys) :]
        find_edges(
            np.ascontiguousarray(keys), np.ascontiguousarray(edges), null, endless,
            partitions.end, not is_start, bound.side == "preceding", found,
        )  # fmt: skip
        return found


def _widened(key: Scalar) -> Scalar:
    """Return the key in a type whose sums with offsets are of the same type."""
    type = type_of(key)
    wider = _WIDER.get(type.name, type)
    if type.name in ("time", "interval"):
        raise Unsupported(f"a frame by distances from {type}")
    if wider.name == type.name:
        return key
    cast = resolve_cast(type, wider, "explicit")
    assert cast is not None, type
    return Call(cast.key, (key,), cast.result)


def _scale(type: SqlType) -> int:
    return (type.scale or 0) if type.name == "numeric" else 0


def _numbers(rows: Rows, place: Place, scale: int) -> Any:
    """Return values as integers in their order, of numerics with `scale` fractional digits."""
    low = rows.words[:, place.word]
    if place.kind == "float":
        low = np.where(low == np.int64(-(1 << 63)), np.int64(0), low)  # -0.0
        order: Any = np.where(low < 0, low ^ np.int64((1 << 63) - 1), low)
        return order
    if place.type.name != "numeric":
        return low
    high = rows.words[:, place.word + 1] if place.width == 2 else low >> np.int64(63)
    unit = 10 ** (scale - _scale(place.type))
    values = [
        ((h << 64) | (w & 0xFFFFFFFFFFFFFFFF)) * unit
        for h, w in zip(high.tolist(), low.tolist(), strict=True)
    ]
    numbers = np.empty(len(values), object)
    numbers[:] = values
    return numbers
