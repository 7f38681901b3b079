"""Groups as SQL: reductions, and rows whose multiplicity is positive."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from foreshore.compute.render.aggregates import ONE, Argument, Sort
from foreshore.compute.render.frame import (
    Frame,
    Render,
    group_by,
    is_accumulable,
    partition_by,
    types_of,
)
from foreshore.expr.columns import type_of
from foreshore.expr.equality import has_one_form
from foreshore.expr.ir import (
    Aggregate,
    Reduce,
    Scalar,
    Threshold,
)
from foreshore.types import SqlType

if TYPE_CHECKING:
    from foreshore.compute.render.render import Renderer


def render_reduce(
    renderer: "Renderer", reduce: Reduce, frame: Frame, groups: str | None = None
) -> Frame:
    """Return one row for each group.

    If a reduction without a key carries columns, `groups` is the FROM item with their values:
    there is a group for each.
    """
    width = len(reduce.group_key) + len(reduce.aggregates)
    if not is_accumulable(reduce) or (groups is not None and renderer.carry):
        return _reduce_rows(renderer, reduce, frame, groups)
    frame = renderer.simple(frame)
    keys = [
        renderer.dialect.representative(renderer.dialect.scalar(key, frame.columns), type_of(key))
        for key in reduce.group_key
    ]
    items = [f"{key} AS c{i}" for i, key in enumerate(keys)]
    items += [f"{sql} AS {name}" for sql, name in zip(frame.carry, renderer.carry, strict=True)]
    by = group_by([str(i + 1) for i in range(len(items))])
    having = f" HAVING sum({frame.diff}) > 0" if items and frame.diff != ONE else ""
    items += _aggregates(
        renderer,
        reduce.aggregates,
        len(keys),
        lambda scalar: renderer.dialect.scalar(scalar, frame.columns),
        frame.diff,
    )
    items.append("CAST(1 AS BIGINT) AS d")
    return renderer.nest(f"SELECT {', '.join(items)}{renderer.clauses(frame)}{by}{having}", width)


def render_threshold(renderer: "Renderer", threshold: Threshold, frame: Frame) -> Frame:
    """Return the rows with positive multiplicity, after consolidation."""
    types = types_of(threshold)
    if all(map(has_one_form, types)):
        return renderer.nest(renderer.consolidate(frame, types, ">"), len(types))
    rows = renderer.nest(renderer.consolidate(frame, types), len(types))
    columns = list(zip(rows.columns, types, strict=True))
    items = [f"{_representative(renderer, *column)} AS c{i}" for i, column in enumerate(columns)]
    items += [f"{sql} AS {name}" for sql, name in zip(rows.carry, renderer.carry, strict=True)]
    total = f"sum({rows.diff})"
    by = [*(renderer.dialect.key(*column) for column in columns), *rows.carry]
    return renderer.nest(
        f"SELECT {', '.join(items)}, CAST({total} AS BIGINT) AS d"
        f"{renderer.clauses(rows)}{group_by(by)} HAVING {total} > 0",
        len(types),
    )


def _aggregates(
    renderer: "Renderer", aggregates: Sequence[Aggregate], first: int, sql: "Render", diff: str
) -> list[str]:
    return [
        f"{_aggregate(renderer, aggregate, sql, diff)} AS c{first + i}"
        for i, aggregate in enumerate(aggregates)
    ]


def _aggregate(
    renderer: "Renderer",
    aggregate: Aggregate,
    sql: "Render",
    diff: str,
    condition: str | None = None,
) -> str:
    """Return the aggregate over entries, of multiplicity `diff`, that meet `condition`."""
    conditions = [condition] if condition else []
    if aggregate.filter is not None and condition is None:
        conditions.append(f"({sql(aggregate.filter)})")
    args = [render_argument(renderer, aggregate, arg, sql) for arg in aggregate.args]
    order = [
        Sort(
            renderer.dialect.key(sql(key.expr), type_of(key.expr)), key.descending, key.nulls_first
        )
        for key in aggregate.order_by
    ]
    return renderer.idioms.aggregate(
        aggregate, args, conditions, order, diff, renderer.dialect.type_name(aggregate.type)
    )


def render_argument(
    renderer: "Renderer", aggregate: Aggregate, arg: Scalar, sql: "Render"
) -> Argument:
    """Return an argument of an aggregate."""
    type = type_of(arg)
    value = sql(arg)
    if aggregate.distinct or aggregate.function in ("min", "max"):
        value = renderer.dialect.representative(value, type)
    key, order = renderer.dialect.key(value, type), renderer.dialect.total_order(value, type)
    return Argument(value, key, order, type, renderer.dialect.reversed(value, type))


def _reduce_rows(renderer: "Renderer", reduce: Reduce, frame: Frame, groups: str | None) -> Frame:
    """Return one row for each group of consolidated rows."""
    width = len(reduce.group_key) + len(reduce.aggregates)
    frame = renderer.simple(frame)
    keys = len(reduce.group_key)
    parts: dict[Scalar, int] = {}
    for scalar in (*reduce.group_key, *_scalars(reduce.aggregates)):
        parts.setdefault(scalar, len(parts))
    frame = replace(
        frame,
        columns=tuple(renderer.dialect.scalar(scalar, frame.columns) for scalar in parts),
        computed=True,
    )
    if frame.diff == ONE:  # equal rows need not be found to be counted
        rows = renderer.simple(frame)
    else:
        rows = renderer.nest(renderer.consolidate(frame, [*map(type_of, parts)], ">"), len(parts))
    key_forms = [
        renderer.dialect.key(rows.columns[parts[key]], type_of(key)) for key in reduce.group_key
    ]

    def sql(scalar: Scalar) -> str:
        return rows.columns[parts[scalar]] if scalar in parts else "NULL"

    conditions: dict[int, str] = {}
    if any(aggregate.distinct for aggregate in reduce.aggregates):
        rows, conditions = _firsts(renderer, reduce, rows, parts, key_forms)
        key_forms = [
            renderer.dialect.key(rows.columns[parts[key]], type_of(key)) for key in reduce.group_key
        ]
    diff = rows.diff
    source = rows.source
    carry = rows.carry
    if groups is not None and renderer.carry:
        every = renderer.table(groups, 0)
        on = " AND ".join(
            f"{a} IS NOT DISTINCT FROM {b}" for a, b in zip(every.carry, rows.carry, strict=True)
        )
        source, carry = f"{every.source} LEFT JOIN {rows.source} ON {on}", every.carry
    items = [
        f"{_representative(renderer, rows.columns[parts[key]], type_of(key))} AS c{i}"
        for i, key in enumerate(reduce.group_key)
    ]
    items += [f"{sql} AS {name}" for sql, name in zip(carry, renderer.carry, strict=True)]
    for i, aggregate in enumerate(reduce.aggregates):
        value = _aggregate(
            renderer,
            aggregate,
            sql,
            "CAST(1 AS BIGINT)" if aggregate.distinct else diff,
            conditions.get(i),
        )
        items.append(f"{value} AS c{keys + i}")
    items.append("CAST(1 AS BIGINT) AS d")
    by = group_by([*key_forms, *carry])
    return renderer.nest(f"SELECT {', '.join(items)} FROM {source}{by}", width)


def _representative(renderer: "Renderer", value: str, type: SqlType) -> str:
    """Return the aggregate that deterministically picks one of the equal values of a key."""
    if renderer.dialect.key(value, type) == value:
        return value
    return f"min({renderer.dialect.representative(value, type)})"


def _firsts(
    renderer: "Renderer",
    reduce: Reduce,
    rows: Frame,
    parts: Mapping[Scalar, int],
    key_forms: Sequence[str],
) -> tuple[Frame, dict[int, str]]:
    """Return rows marked, for each DISTINCT aggregate, at the first of equal arguments."""
    marks = []
    for aggregate in reduce.aggregates:
        if not aggregate.distinct:
            continue
        filter = rows.columns[parts[aggregate.filter]] if aggregate.filter is not None else None
        args = [(rows.columns[parts[arg]], type_of(arg)) for arg in aggregate.args]
        partition = [*key_forms, *rows.carry, *(renderer.dialect.key(*arg) for arg in args)]
        if filter is not None:
            partition.append(f"coalesce({filter}, false)")
        window = (
            f"row_number() OVER ({partition_by(partition)}"
            f"ORDER BY {', '.join(arg for arg, _ in args) or '1'})"
        )
        first = f"{window} = 1"
        marks.append(f"({first} AND coalesce({filter}, false))" if filter else f"({first})")
    width = len(rows.columns)
    marked = renderer.nest(
        renderer.select(replace(rows, columns=rows.columns + tuple(marks))), width + len(marks)
    )
    distinct = [i for i, aggregate in enumerate(reduce.aggregates) if aggregate.distinct]
    return marked, {i: marked.columns[width + n] for n, i in enumerate(distinct)}


def _scalars(aggregates: Sequence[Aggregate]) -> Iterable[Scalar]:
    for aggregate in aggregates:
        yield from aggregate.args
        yield from (key.expr for key in aggregate.order_by)
        if aggregate.filter is not None:
            yield aggregate.filter
