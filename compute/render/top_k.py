"""The rows of each group between two positions, as SQL."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foreshore.compute.render.aggregates import Sort
from foreshore.compute.render.frame import (
    Frame,
    partition_by,
    types_of,
)
from foreshore.expr.columns import type_of
from foreshore.expr.ir import (
    Column,
    Literal,
    OrderKey,
    Scalar,
    TopK,
)
from foreshore.types import SqlType

if TYPE_CHECKING:
    from foreshore.compute.render.render import Renderer

MAX_ROWS = 2**62  # more than possible; its double is still a BIGINT


def render_top_k(renderer: "Renderer", top_k: TopK, frame: Frame) -> Frame:
    """Return the rows of each group between two positions."""
    first, beyond = _bounds(renderer, top_k)
    types = types_of(top_k)
    width = len(types)
    rows = renderer.nest(renderer.present(top_k.input, frame, types), width)
    if not top_k.group_key and not frame.carry:
        rows = _limited(renderer, top_k, rows, types)
    order = _sorts(renderer, top_k, rows, types)
    group = [renderer.dialect.key(rows.columns[i], types[i]) for i in top_k.group_key]
    window = (
        f"sum({rows.diff}) OVER ({partition_by([*group, *rows.carry])}"
        f"ORDER BY {', '.join(sort.sql for sort in order) or '1'} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    ranked = renderer.nest(
        renderer.select(replace(rows, columns=(*rows.columns, window))), width + 1
    )
    last = ranked.columns[width]
    start = f"greatest({last} - {ranked.diff}, {first})"
    end = last if beyond is None else f"least({last}, {beyond})"
    return renderer.nest(
        renderer.select(
            replace(
                ranked,
                columns=ranked.columns[:width],
                diff=f"CAST({end} - {start} AS BIGINT)",
                where=(f"{end} > {start}",),
            )
        ),
        width,
    )


def _limited(renderer: "Renderer", top_k: TopK, rows: Frame, types: Sequence[SqlType]) -> Frame:
    """Return the entries up to the last position, if that is known: each is a row at least once."""
    start, length = _literal_bound(top_k.offset, 0), _literal_bound(top_k.limit, None)
    if start is NotImplemented or length is NotImplemented or length is None:
        return rows
    order = ", ".join(sort.sql for sort in _sorts(renderer, top_k, rows, types))
    last = min(start + length, MAX_ROWS)
    select = f"{renderer.select(rows)} ORDER BY {order or '1'} LIMIT {last}"
    return renderer.nest(select, len(types))


def _sorts(renderer: "Renderer", top_k: TopK, rows: Frame, types: Sequence[SqlType]) -> list[Sort]:
    """Return the order of rows, in which only identical ones are equal."""
    order = [
        Sort(
            renderer.dialect.key(
                renderer.dialect.scalar(key.expr, rows.columns), type_of(key.expr)
            ),
            key.descending,
            key.nulls_first,
        )
        for key in _order(renderer, top_k.order_key, types)
    ]
    for column, type in zip(rows.columns, types, strict=True):
        order += map(Sort, renderer.dialect.total_order(column, type)[1:])
    return order


def _order(
    renderer: "Renderer", keys: Iterable[OrderKey], types: Sequence[SqlType]
) -> list[OrderKey]:
    """Return `keys`, followed by all columns."""
    return [*keys, *(OrderKey(Column(i, type)) for i, type in enumerate(types))]


def _bounds(renderer: "Renderer", top_k: TopK) -> tuple[str, str | None]:
    """Return the positions, from 0, at which the wanted rows begin and end."""
    start = _literal_bound(top_k.offset, 0)
    length = _literal_bound(top_k.limit, None)
    if start is not NotImplemented and length is not NotImplemented:
        end = None if length is None else f"CAST({min(start + length, MAX_ROWS)} AS BIGINT)"
        return f"CAST({min(start, MAX_ROWS)} AS BIGINT)", end
    offset = _position(renderer, top_k.offset, 0)
    return offset, f"({offset} + {_position(renderer, top_k.limit, MAX_ROWS)})"


def _position(renderer: "Renderer", bound: Scalar | None, default: int) -> str:
    if bound is None:
        return f"CAST({default} AS BIGINT)"
    sql = f"CAST({renderer.dialect.scalar(bound, ())} AS BIGINT)"
    return f"least(coalesce({sql}, {default}), {MAX_ROWS})"


def _literal_bound(bound: Scalar | None, default: Any) -> Any:
    """Return the bound's value, NotImplemented if it has to be computed."""
    match bound:
        case None | Literal(value=None):
            return default
        case Literal(value=value):
            return value
        case _:
            return NotImplemented
