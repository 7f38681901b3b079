"""Rendering: a lowered relation as one SQL statement of a bulk engine.

A collection is a table with columns `c0`, `c1`, ... and `d`, the multiplicity. A row may have
several entries, whose multiplicities add up. Joins multiply multiplicities. Operators that need
whole rows rather than sums (min and max, TopK, Threshold) consolidate first.

An intermediate result is a `Frame`, a SELECT with separate clauses, so that linear operators become
one SELECT and a join of them one FROM. Besides its columns a frame may *carry* named columns that
accompany each row and separate groups: the renderer of changes (`compute/delta/changes.py`) carries
times through linear operators and points through grouping ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from foreshore.compute.bulk.aggregates import ONE, Argument, Idioms, Sort
from foreshore.compute.bulk.dialect import Dialect
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    Aggregate,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.traversal import walk_scalars
from foreshore.ids import GlobalId
from foreshore.types import ColumnType, SqlType, has_one_form, is_float

# Larger constants are not written into statements.
SHORT_CONSTANT = 4
MAX_ROWS = 2**62  # more than possible; its double is still a BIGINT


@dataclass(frozen=True, slots=True)
class Frame:
    """A SELECT under construction."""

    source: str  # the FROM items; empty for a single row without a table
    columns: tuple[str, ...]
    diff: str
    carry: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    computed: bool = False  # some column is more than a reference


class Renderer:
    """Renders relations over named tables into one statement.

    `sources` are FROM items for collections, `tables` those for the names of `LocalGet`. `constant`
    returns one for a large constant, which would be slow as text. Each entry of the collections
    `single` is there once. All have the columns `c0`, ...,
    those of `carry`, and `d`.
    """

    def __init__(
        self,
        dialect: Dialect,
        idioms: Idioms,
        sources: Mapping[GlobalId, str],
        tables: Mapping[int, str] | None = None,
        carry: tuple[str, ...] = (),
        constant: Callable[[Constant], str] | None = None,
        single: frozenset[GlobalId] = frozenset(),
    ) -> None:
        self.dialect = dialect
        self.idioms = idioms
        self.carry = carry
        self._sources = sources
        self._long_constant = constant
        self._single = single
        self._tables = dict(tables or {})
        self._names = 0
        self._ctes: list[tuple[str, str]] = []

    # --- statements ----------------------------------------------------------------------

    def statement(self, relation: Relation) -> str:
        """Return the statement for the unconsolidated entries of `relation`."""
        return self.with_ctes(self.select(self.frame(relation)))

    def consolidated(self, relation: Relation) -> str:
        """Return the statement for the consolidated rows of `relation`."""
        frame = self.frame(relation)
        return self.with_ctes(self.consolidate(frame, types_of(relation)))

    def with_ctes(self, select: str) -> str:
        """Return the statement `select` preceded by its CTEs."""
        if not self._ctes:
            return select
        ctes = ", ".join(f"{name} AS ({text})" for name, text in self._ctes)
        return f"WITH {ctes} {select}"

    def bind(self, select: str) -> str:
        """Return a new name for the result of `select`."""
        self._names += 1
        name = f"w{self._names}"
        self._ctes.append((name, select))
        return name

    # --- frames --------------------------------------------------------------------------

    def table(self, item: str, width: int, carry: tuple[str, ...] | None = None) -> Frame:
        """Return the frame of a FROM item: a table's name or a SELECT in parentheses."""
        self._names += 1
        alias = f"x{self._names}"
        return Frame(
            f"{item} AS {alias}",
            tuple(f"{alias}.c{i}" for i in range(width)),
            f"{alias}.d",
            tuple(f"{alias}.{name}" for name in (self.carry if carry is None else carry)),
        )

    def nest(self, select: str, width: int) -> Frame:
        """Return the frame of the result of `select`."""
        return self.table(f"({select})", width)

    def select(self, frame: Frame) -> str:
        """Return the frame as a SELECT."""
        items = [f"{column} AS c{i}" for i, column in enumerate(frame.columns)]
        items += [f"{sql} AS {name}" for sql, name in zip(frame.carry, self.carry, strict=True)]
        items.append(f"{frame.diff} AS d")
        return f"SELECT {', '.join(items)}{self.clauses(frame)}"

    def clauses(self, frame: Frame) -> str:
        """Return FROM and WHERE."""
        source = f" FROM {frame.source}" if frame.source else ""
        return source + (f" WHERE {' AND '.join(frame.where)}" if frame.where else "")

    def simple(self, frame: Frame) -> Frame:
        """Return the frame with columns that can be referenced more than once."""
        return self.nest(self.select(frame), len(frame.columns)) if frame.computed else frame

    def consolidate(self, frame: Frame, types: Sequence[SqlType], keep: str = "<>") -> str:
        """Return a SELECT that consolidates rows, keeping multiplicities that are `keep` zero.

        `types` are those of the frame's columns. Rows are distinguished as by `Dialect.identity`.
        """
        if not all(map(has_one_form, types)):
            frame = self.simple(frame)
        items: list[str] = []
        by: list[str] = []
        for i, (column, type) in enumerate(zip(frame.columns, types, strict=True)):
            forms = self.dialect.identity(column, type)
            items.append(f"{self.dialect.of_group(column, forms)} AS c{i}")
            by += [str(i + 1)] if forms == (column,) else forms
        for sql, name in zip(frame.carry, self.carry, strict=True):
            items.append(f"{sql} AS {name}")
            by.append(str(len(items)))
        total = f"sum({frame.diff})"
        return (
            f"SELECT {''.join(f'{item}, ' for item in items)}CAST({total} AS BIGINT) AS d"
            f"{self.clauses(frame)}{group_by(by)} HAVING {total} {keep} 0"
        )

    # --- relations -----------------------------------------------------------------------

    def frame(self, relation: Relation) -> Frame:
        """Return `relation` as a frame."""
        match relation:
            case Constant():
                return self._constant(relation)
            case Get(id=id, columns=columns):
                frame = self.table(self._sources[id], len(columns))
                return replace(frame, diff=ONE) if id in self._single else frame
            case LocalGet(number=number, columns=columns):
                return self.table(self._tables[number], len(columns))
            case Let(number=number, value=value, body=body):
                self._tables[number] = self.bind(self.select(self.frame(value)))
                return self.frame(body)
            case Map() | Filter() | Project() | FlatMap() | Negate():
                return self.linear(relation, self.frame(relation.input))
            case Union(inputs=inputs):
                return self.union([self.frame(input) for input in inputs])
            case Join(inputs=inputs):
                return self.join(relation, [self.frame(input) for input in inputs])
            case Reduce(input=input):
                return self.reduce(relation, self.frame(input))
            case TopK(input=input):
                return self.top_k(relation, self.frame(input))
            case Window(input=input):
                return self.window(relation, self.frame(input))
            case Threshold(input=input):
                return self.threshold(relation, self.frame(input))
            case TemporalFilter() | JoinOn() | LetRec() | Recursive():
                raise AssertionError("a bound form in a lowered plan")

    def _constant(self, constant: Constant) -> Frame:
        width = len(constant.columns)
        if self._long_constant is not None and len(constant.rows) > SHORT_CONSTANT:
            return self.table(self._long_constant(constant), width)
        selects = []
        for row, count in constant.rows:
            items = [
                f"{self.dialect.literal(datum, column.type)} AS c{i}"
                for i, (datum, column) in enumerate(zip(row, constant.columns, strict=True))
            ]
            selects.append(f"SELECT {', '.join([*items, f'CAST({count} AS BIGINT) AS d'])}")
        if selects:
            return self.nest(" UNION ALL ".join(selects), width)
        return self.nest(self.nothing(constant.columns), width)

    def nothing(self, columns: Sequence[ColumnType]) -> str:
        """Return a SELECT of these `columns` without rows."""
        items = [
            f"CAST(NULL AS {self.dialect.type_name(column.type)}) AS c{i}"
            for i, column in enumerate(columns)
        ]
        items += [f"CAST(NULL AS BIGINT) AS {name}" for name in self.carry]
        return f"SELECT {', '.join([*items, 'CAST(0 AS BIGINT) AS d'])} WHERE false"

    def linear(self, relation: Map | Filter | Project | FlatMap | Negate, frame: Frame) -> Frame:
        """Return a linear operator applied to its input."""
        match relation:
            case Map(scalars=scalars):
                for scalar in scalars:
                    if frame.computed and uses_columns([scalar]):
                        frame = self.simple(frame)
                    sql = self.dialect.scalar(scalar, frame.columns)
                    frame = replace(frame, columns=(*frame.columns, sql), computed=True)
                return frame
            case Filter(predicates=predicates):
                if uses_columns(predicates):
                    frame = self.simple(frame)
                wheres = tuple(
                    f"({self.dialect.scalar(predicate, frame.columns)})" for predicate in predicates
                )
                return replace(frame, where=frame.where + wheres)
            case Project(outputs=outputs):
                return replace(frame, columns=tuple(frame.columns[i] for i in outputs))
            case Negate():
                return replace(frame, diff=f"-({frame.diff})")
            case FlatMap():
                return self._flat_map(relation, self.simple(frame))

    def _flat_map(self, relation: FlatMap, frame: Frame) -> Frame:
        """Return each row with the elements of arrays in step, numbered if requested."""
        arrays = [self.dialect.scalar(array, frame.columns) for array in relation.arrays]
        rows = arrays[0] if len(arrays) == 1 else self.idioms.in_step(arrays)
        if relation.is_numbered:
            rows = self.idioms.numbered(rows)
        unnested = replace(frame, columns=(*frame.columns, self.idioms.unnest(rows)))
        nested = self.nest(self.select(unnested), len(frame.columns) + 1)
        *columns, made = nested.columns
        element = f"{made}.e" if relation.is_numbered else made
        parts = [element]
        if len(arrays) > 1:
            parts = [self.idioms.part(element, i) for i in range(len(arrays))]
        if relation.is_numbered:
            parts.append(f"CAST({made}.n AS BIGINT)")
        return replace(nested, columns=(*columns, *parts), computed=len(parts) > 1)

    def union(self, frames: Sequence[Frame]) -> Frame:
        """Return the sum of at least one frame."""
        if len(frames) == 1:
            return frames[0]
        selects = " UNION ALL ".join(map(self.select, frames))
        return self.nest(selects, len(frames[0].columns))

    # --- joins ---------------------------------------------------------------------------

    def join(self, join: Join, frames: Sequence[Frame]) -> Frame:
        """Return the join of frames, of which at most one carries a time."""
        frames = [self.simple(frame) for frame in frames]
        columns = tuple(column for frame in frames for column in frame.columns)
        where = [predicate for frame in frames for predicate in frame.where]
        for position, equivalence in enumerate(join.equivalences):
            equal = "IS NOT DISTINCT FROM" if position in join.null_safe else "="
            sides = self.dialect.common_keys(
                [self.dialect.scalar(scalar, columns) for scalar in equivalence],
                [type_of(scalar) for scalar in equivalence],
            )
            where += [f"{sides[0]} {equal} {side}" for side in sides[1:]]
        return Frame(
            ", ".join(frame.source for frame in frames if frame.source),
            columns,
            " * ".join(f"({frame.diff})" for frame in frames if frame.diff != ONE) or ONE,
            next((frame.carry for frame in frames if frame.carry), ()),
            tuple(where),
        )

    # --- groups --------------------------------------------------------------------------

    def reduce(self, reduce: Reduce, frame: Frame, groups: str | None = None) -> Frame:
        """Return one row for each group.

        If a reduction without a key carries columns, `groups` is the FROM item with their values:
        there is a group for each.
        """
        width = len(reduce.group_key) + len(reduce.aggregates)
        if not is_accumulable(reduce) or (groups is not None and self.carry):
            return self._reduce_rows(reduce, frame, groups)
        frame = self.simple(frame)
        keys = [
            self.dialect.representative(self.dialect.scalar(key, frame.columns), type_of(key))
            for key in reduce.group_key
        ]
        items = [f"{key} AS c{i}" for i, key in enumerate(keys)]
        items += [f"{sql} AS {name}" for sql, name in zip(frame.carry, self.carry, strict=True)]
        by = group_by([str(i + 1) for i in range(len(items))])
        having = f" HAVING sum({frame.diff}) > 0" if items else ""
        items += self._aggregates(
            reduce.aggregates,
            len(keys),
            lambda scalar: self.dialect.scalar(scalar, frame.columns),
            frame.diff,
        )
        items.append("CAST(1 AS BIGINT) AS d")
        return self.nest(f"SELECT {', '.join(items)}{self.clauses(frame)}{by}{having}", width)

    def threshold(self, threshold: Threshold, frame: Frame) -> Frame:
        """Return the rows with positive multiplicity, after consolidation."""
        types = types_of(threshold)
        if all(map(has_one_form, types)):
            return self.nest(self.consolidate(frame, types, ">"), len(types))
        rows = self.nest(self.consolidate(frame, types), len(types))
        columns = list(zip(rows.columns, types, strict=True))
        items = [f"{self._representative(*column)} AS c{i}" for i, column in enumerate(columns)]
        items += [f"{sql} AS {name}" for sql, name in zip(rows.carry, self.carry, strict=True)]
        total = f"sum({rows.diff})"
        by = [*(self.dialect.key(*column) for column in columns), *rows.carry]
        return self.nest(
            f"SELECT {', '.join(items)}, CAST({total} AS BIGINT) AS d"
            f"{self.clauses(rows)}{group_by(by)} HAVING {total} > 0",
            len(types),
        )

    def _aggregates(
        self, aggregates: Sequence[Aggregate], first: int, sql: "Render", diff: str
    ) -> list[str]:
        return [
            f"{self.aggregate(aggregate, sql, diff)} AS c{first + i}"
            for i, aggregate in enumerate(aggregates)
        ]

    def aggregate(
        self, aggregate: Aggregate, sql: "Render", diff: str, condition: str | None = None
    ) -> str:
        """Return the aggregate over entries, of multiplicity `diff`, that meet `condition`."""
        conditions = [condition] if condition else []
        if aggregate.filter is not None and condition is None:
            conditions.append(f"({sql(aggregate.filter)})")
        args = [self.argument(aggregate, arg, sql) for arg in aggregate.args]
        order = [
            Sort(
                self.dialect.key(sql(key.expr), type_of(key.expr)), key.descending, key.nulls_first
            )
            for key in aggregate.order_by
        ]
        return self.idioms.aggregate(
            aggregate, args, conditions, order, diff, self.dialect.type_name(aggregate.type)
        )

    def argument(self, aggregate: Aggregate, arg: Scalar, sql: "Render") -> Argument:
        """Return an argument of an aggregate."""
        type = type_of(arg)
        value = sql(arg)
        if aggregate.distinct or aggregate.function in ("min", "max"):
            value = self.dialect.representative(value, type)
        key, order = self.dialect.key(value, type), self.dialect.total_order(value, type)
        return Argument(value, key, order, type)

    def _reduce_rows(self, reduce: Reduce, frame: Frame, groups: str | None) -> Frame:
        """Return one row for each group of consolidated rows."""
        width = len(reduce.group_key) + len(reduce.aggregates)
        frame = self.simple(frame)
        keys = len(reduce.group_key)
        parts: dict[Scalar, int] = {}
        for scalar in (*reduce.group_key, *_scalars(reduce.aggregates)):
            parts.setdefault(scalar, len(parts))
        frame = replace(
            frame,
            columns=tuple(self.dialect.scalar(scalar, frame.columns) for scalar in parts),
            computed=True,
        )
        rows = self.nest(self.consolidate(frame, [*map(type_of, parts)], ">"), len(parts))
        key_forms = [
            self.dialect.key(rows.columns[parts[key]], type_of(key)) for key in reduce.group_key
        ]

        def sql(scalar: Scalar) -> str:
            return rows.columns[parts[scalar]] if scalar in parts else "NULL"

        conditions: dict[int, str] = {}
        if any(aggregate.distinct for aggregate in reduce.aggregates):
            rows, conditions = self._firsts(reduce, rows, parts, key_forms)
            key_forms = [
                self.dialect.key(rows.columns[parts[key]], type_of(key)) for key in reduce.group_key
            ]
        diff = rows.diff
        source = rows.source
        carry = rows.carry
        if groups is not None and self.carry:
            every = self.table(groups, 0)
            on = " AND ".join(
                f"{a} IS NOT DISTINCT FROM {b}"
                for a, b in zip(every.carry, rows.carry, strict=True)
            )
            source, carry = f"{every.source} LEFT JOIN {rows.source} ON {on}", every.carry
        items = [
            f"{self._representative(rows.columns[parts[key]], type_of(key))} AS c{i}"
            for i, key in enumerate(reduce.group_key)
        ]
        items += [f"{sql} AS {name}" for sql, name in zip(carry, self.carry, strict=True)]
        for i, aggregate in enumerate(reduce.aggregates):
            value = self.aggregate(
                aggregate,
                sql,
                "CAST(1 AS BIGINT)" if aggregate.distinct else diff,
                conditions.get(i),
            )
            items.append(f"{value} AS c{keys + i}")
        items.append("CAST(1 AS BIGINT) AS d")
        by = group_by([*key_forms, *carry])
        return self.nest(f"SELECT {', '.join(items)} FROM {source}{by}", width)

    def _representative(self, value: str, type: SqlType) -> str:
        """Return the aggregate that deterministically picks one of the equal values of a key."""
        if self.dialect.key(value, type) == value:
            return value
        return f"min({self.dialect.representative(value, type)})"

    def _firsts(
        self, reduce: Reduce, rows: Frame, parts: Mapping[Scalar, int], key_forms: Sequence[str]
    ) -> tuple[Frame, dict[int, str]]:
        """Return rows marked, for each DISTINCT aggregate, at the first of equal arguments."""
        marks = []
        for aggregate in reduce.aggregates:
            if not aggregate.distinct:
                continue
            filter = rows.columns[parts[aggregate.filter]] if aggregate.filter is not None else None
            args = [(rows.columns[parts[arg]], type_of(arg)) for arg in aggregate.args]
            partition = [*key_forms, *rows.carry, *(self.dialect.key(*arg) for arg in args)]
            if filter is not None:
                partition.append(f"coalesce({filter}, false)")
            window = (
                f"row_number() OVER ({partition_by(partition)}"
                f"ORDER BY {', '.join(arg for arg, _ in args) or '1'})"
            )
            first = f"{window} = 1"
            marks.append(f"({first} AND coalesce({filter}, false))" if filter else f"({first})")
        width = len(rows.columns)
        marked = self.nest(
            self.select(replace(rows, columns=rows.columns + tuple(marks))), width + len(marks)
        )
        distinct = [i for i, aggregate in enumerate(reduce.aggregates) if aggregate.distinct]
        return marked, {i: marked.columns[width + n] for n, i in enumerate(distinct)}

    def top_k(self, top_k: TopK, frame: Frame) -> Frame:
        """Return the rows of each group between two positions."""
        first, beyond = self._bounds(top_k)
        types = types_of(top_k)
        width = len(types)
        rows = self.nest(self.consolidate(frame, types, ">"), width)
        order = [
            Sort(
                self.dialect.key(self.dialect.scalar(key.expr, rows.columns), type_of(key.expr)),
                key.descending,
                key.nulls_first,
            )
            for key in self._order(top_k.order_key, types)
        ]
        for column, type in zip(rows.columns, types, strict=True):
            order += map(Sort, self.dialect.total_order(column, type)[1:])
        group = [self.dialect.key(rows.columns[i], types[i]) for i in top_k.group_key]
        window = (
            f"sum({rows.diff}) OVER ({partition_by([*group, *rows.carry])}"
            f"ORDER BY {', '.join(sort.sql for sort in order) or '1'} "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        )
        ranked = self.nest(self.select(replace(rows, columns=(*rows.columns, window))), width + 1)
        last = ranked.columns[width]
        start = f"greatest({last} - {ranked.diff}, {first})"
        end = last if beyond is None else f"least({last}, {beyond})"
        return self.nest(
            self.select(
                replace(
                    ranked,
                    columns=ranked.columns[:width],
                    diff=f"CAST({end} - {start} AS BIGINT)",
                    where=(f"{end} > {start}",),
                )
            ),
            width,
        )

    def window(self, window: Window, frame: Frame) -> Frame:
        """Return each row with the values of window functions."""
        from foreshore.compute.bulk.windows import render_window

        return render_window(self, window, frame)

    def _order(self, keys: Iterable[OrderKey], types: Sequence[SqlType]) -> list[OrderKey]:
        """Return `keys`, followed by all columns."""
        return [*keys, *(OrderKey(Column(i, type)) for i, type in enumerate(types))]

    def _bounds(self, top_k: TopK) -> tuple[str, str | None]:
        """Return the positions, from 0, at which the wanted rows begin and end."""
        start = _literal_bound(top_k.offset, 0)
        length = _literal_bound(top_k.limit, None)
        if start is not NotImplemented and length is not NotImplemented:
            end = None if length is None else f"CAST({min(start + length, MAX_ROWS)} AS BIGINT)"
            return f"CAST({min(start, MAX_ROWS)} AS BIGINT)", end
        offset = self._position(top_k.offset, 0)
        return offset, f"({offset} + {self._position(top_k.limit, MAX_ROWS)})"

    def _position(self, bound: Scalar | None, default: int) -> str:
        if bound is None:
            return f"CAST({default} AS BIGINT)"
        sql = f"CAST({self.dialect.scalar(bound, ())} AS BIGINT)"
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


class Render(Protocol):
    """Renders a scalar as SQL."""

    def __call__(self, scalar: Scalar, /) -> str:
        """Return SQL over the current row."""
        ...


def partition_by(by: Sequence[str]) -> str:
    """Return the PARTITION BY of a window, empty for a window over all rows."""
    return f"PARTITION BY {', '.join(by)} " if by else ""


def group_by(forms: Sequence[str]) -> str:
    """Return the GROUP BY of `forms`, empty if there are none."""
    return f" GROUP BY {', '.join(forms)}" if forms else ""


def types_of(relation: Relation) -> list[SqlType]:
    """Return the types of the columns of `relation`."""
    return [column.type for column in columns_of(relation)]


def _scalars(aggregates: Sequence[Aggregate]) -> Iterable[Scalar]:
    for aggregate in aggregates:
        yield from aggregate.args
        yield from (key.expr for key in aggregate.order_by)
        if aggregate.filter is not None:
            yield aggregate.filter


def uses_columns(scalars: Iterable[Scalar]) -> bool:
    """Whether any of `scalars` depends on the row."""
    return any(isinstance(s, Column) for scalar in scalars for s in walk_scalars(scalar))


def is_accumulable(reduce: Reduce) -> bool:
    """Whether maintained sums over a group's entries determine its row."""
    return all(
        aggregate.function in ("count", "sum") and not aggregate.distinct
        for aggregate in reduce.aggregates
    ) and all(has_one_form(type) or is_float(type) for type in map(type_of, reduce.group_key))
