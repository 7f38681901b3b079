"""Rendering: a lowered relation as one SQL statement of a bulk engine.

A collection is a table with columns `c0`, `c1`, ... and `d`, the multiplicity. A row may have
several entries, whose multiplicities add up. Joins multiply multiplicities. Operators that need
whole rows rather than sums (min and max, TopK, Threshold) consolidate first.

An intermediate result is a `Frame`, a SELECT with separate clauses, so that linear operators become
one SELECT and a join of them one FROM. Besides its columns a frame may *carry* named columns that
accompany each row and separate groups: the renderer of changes (`compute/delta/changes.py`) carries
times through linear operators and points through grouping ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from foreshore.compute.render.aggregates import ONE, Idioms
from foreshore.compute.render.dialect import Dialect
from foreshore.compute.render.frame import (
    Frame,
    group_by,
    types_of,
    uses_columns,
)
from foreshore.compute.render.groups import render_reduce, render_threshold
from foreshore.compute.render.top_k import render_top_k
from foreshore.expr.columns import type_of
from foreshore.expr.equality import has_one_form
from foreshore.expr.ir import (
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    LocalGet,
    Map,
    Negate,
    Project,
    Recursive,
    Reduce,
    Relation,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.python_calls import asks_hosts
from foreshore.expr.series import series_of
from foreshore.ids import GlobalId
from foreshore.types import ColumnType, SqlType

# Larger constants are not written into statements.
SHORT_CONSTANT = 4
FEW_NUMBERS = 1000  # of a series that is a list


class Renderer:
    """Renders relations over named tables into one statement.

    `sources` are FROM items for collections, `tables` those for the names of `LocalGet`. `constant`
    returns one for a large constant, which would be slow as text. Each entry of the collections
    `single` is there once; those of `retracting` may cancel each other. All have the columns
    `c0`, ..., those of `carry`, and `d`.
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
        retracting: frozenset[GlobalId] = frozenset(),
    ) -> None:
        self.dialect = dialect
        self.idioms = idioms
        self.carry = carry
        self._sources = sources
        self._long_constant = constant
        self._single = single
        self._retracting = retracting
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

    def settled(self, relation: Relation) -> str:
        """Return the statement for the rows of entries some of which cancel others.

        Where a hash distinguishes rows, only those that are taken away somewhere are added up, as
        they are few in most tables; the others come as they are found, equal ones perhaps apart.
        Columns are computed from what is left.
        """
        if not types_of(relation) or not self._has_settled(relation):
            return self.consolidated(relation)
        return self.with_ctes(self.select(self._without_cancelled(relation)))

    def count_cancelled(self, relation: Relation) -> str:
        """Return the statement for how many rows the entries below zero of a relation take away."""
        entries = self.nest(self.select(self.frame(relation)), len(types_of(relation)))
        taken = replace(entries, where=(f"{entries.diff} < 0",))
        total = f"SELECT CAST(coalesce(-sum({entries.diff}), 0) AS BIGINT) AS d"
        return self.with_ctes(f"{total}{self.clauses(taken)}")

    def first_entries(self, relation: Relation, bounds: str) -> str:
        """Return the statement for the rows of those entries that `bounds` choose.

        `bounds` are ORDER BY and LIMIT of entries above zero, which those below it may cancel.
        """
        types = types_of(relation)
        entries = self.nest(self.select(self.frame(relation)), len(types))
        added = self.select(replace(entries, where=(f"{entries.diff} > 0",)))
        taken = self.select(replace(entries, where=(f"{entries.diff} < 0",)))
        some = self.nest(f"({added}{bounds}) UNION ALL {taken}", len(types))
        return self.with_ctes(self.consolidate(some, types, ">"))

    def present(self, relation: Relation, frame: Frame, types: Sequence[SqlType]) -> str:
        """Return a SELECT of the rows of a relation, each of its entries at least once.

        `frame` is the relation's; equal rows perhaps apart.
        """
        if frame.diff == ONE:
            return self.select(frame)
        if self._may_cancel(relation) and self._has_settled(relation):
            return self.select(self._without_cancelled(relation))
        return self.consolidate(frame, types, ">")

    def _has_settled(self, relation: Relation) -> bool:
        chosen = _chosen(relation)
        return (
            self.dialect.hash_function is not None and chosen is not None and bool(types_of(chosen))
        )

    def _without_cancelled(self, relation: Relation) -> Frame:
        """Return the rows of a relation that has a `_chosen` one, in entries above zero."""
        if relation is not _chosen(relation):
            assert isinstance(relation, Map | Filter | Project), relation
            return self.linear(relation, self._without_cancelled(relation.input))
        types = types_of(relation)
        entries = self.nest(self.select(self.frame(relation)), len(types))
        hashed = f"{self.dialect.hash_function}({', '.join(entries.columns)})"
        taken = f"SELECT {hashed}{self.clauses(entries)} WHERE {entries.diff} < 0"
        kept = self.select(replace(entries, where=(f"{hashed} NOT IN ({taken})",)))
        changed = replace(entries, where=(f"{hashed} IN ({taken})",))
        return self.nest(f"{kept} UNION ALL {self.consolidate(changed, types)}", len(types))

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
        if not frame.computed:
            return frame
        nested = self.nest(self.select(frame), len(frame.columns))
        return replace(nested, diff=ONE) if frame.diff == ONE else nested

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
            case FlatMap(input=Join(inputs=())) if (series := self._series(relation)) is not None:
                return series
            case Map() | Filter() | Project() | FlatMap() | Negate():
                frame = self.frame(relation.input)
                if asks_hosts(relation) and self._may_cancel(relation.input):
                    types = types_of(relation.input)  # a call costs more than a group
                    frame = self.nest(self.consolidate(frame, types), len(types))
                return self.linear(relation, frame)
            case Union(inputs=inputs):
                return self.union([self.frame(input) for input in inputs])
            case Join(inputs=inputs):
                return self.join(relation, [self.frame(input) for input in inputs])
            case Reduce(input=input):
                return render_reduce(self, relation, self.frame(input))
            case TopK(input=input):
                return render_top_k(self, relation, self.frame(input))
            case Window(input=input):
                return self.window(relation, self.frame(input))
            case Threshold(input=input):
                return render_threshold(self, relation, self.frame(input))
            case TemporalFilter() | JoinOn() | LetRec() | Recursive():
                raise AssertionError("a bound form in a lowered plan")

    def _may_cancel(self, relation: Relation) -> bool:
        """Whether linear operators over a collection have entries that may cancel each other.

        Those that call functions in Python have been consolidated before.
        """
        while isinstance(relation, Map | Filter | Project) and not asks_hosts(relation):
            relation = relation.input
        return isinstance(relation, Get) and relation.id in self._retracting

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

    def _series(self, relation: FlatMap) -> Frame | None:
        """Return the rows of a long series of integers if the engine can make them one by one."""
        series = series_of(relation.arrays[0])
        if series is None or series.length < FEW_NUMBERS:
            return None
        made = self.idioms.series(series)
        if made is None:
            return None
        items = [f"CAST(e AS {self.dialect.type_name(relation.columns[0].type)}) AS c0"]
        if relation.is_numbered:
            items.append(f"CAST((e - {series.first}) // {series.step} + 1 AS BIGINT) AS c1")
        select = f"SELECT {', '.join([*items, f'{ONE} AS d'])} FROM ({made})"
        return replace(self.table(f"({select})", len(items), ()), diff=ONE)

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

    def window(self, window: Window, frame: Frame) -> Frame:
        """Return each row with the values of window functions."""
        from foreshore.compute.render.windows import render_window

        return render_window(self, window, frame)


def has_entries_of_rows(relation: Relation) -> bool:
    """Whether each entry of a relation is one of a collection, computed without calls in Python."""
    return _chosen(relation) is not None


def _chosen(relation: Relation) -> Relation | None:
    """Return the rows and columns of a collection from which all that `relation` has is computed.

    None if it is something else than linear operators, without calls in Python, over a collection.
    """
    chosen = relation
    while isinstance(relation, Map | Filter | Project) and not asks_hosts(relation):
        computes, relation = isinstance(relation, Map), relation.input
        if computes:
            chosen = relation
    return chosen if isinstance(relation, Get) else None
