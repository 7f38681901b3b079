"""Window functions as SQL: OVER where the engine's meaning is SQL's, else joins of a partition.

The rows of a partition are ordered by the keys, then by all columns, so they have no ties. Peers
are equal in the keys alone. An engine's OVER has one order, so a function of a frame of peers that
also depends on the order of its rows gets that order as ORDER BY within the call.

Where an engine has no such form, each row is joined with the rows of its frame, found by their
numbers in the partition and in its groups of peers, and the frame is aggregated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_node

from foreshore.compute.render.aggregates import FRAMED, Sort
from foreshore.compute.render.frame import Frame, partition_by, types_of
from foreshore.compute.render.frames import Edges, count_of, frame_sql
from foreshore.compute.render.groups import render_argument
from foreshore.compute.render.render import Renderer
from foreshore.expr import ir
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Column, Literal, Map, Scalar, Window, WindowFunction
from foreshore.expr.scalars import with_scalars
from foreshore.expr.windows import aggregate_of, is_first

MOST_ROWS = 2**31 - 1  # an offset is an INT in Spark
ONE = "CAST(1 AS BIGINT)"


def render_window(renderer: Renderer, window: Window, frame: Frame) -> Frame:
    """Return each row with the values of the window's functions."""
    width = len(types_of(window.input))
    computed = _computed(window)
    if computed:  # once, so that they can be referenced
        mapped = Map(window.input, tuple(computed))
        frame = renderer.linear(mapped, renderer.simple(frame))
        window = _over_columns(window, mapped, computed)
    result = _Rendering(renderer, window, frame, width).result()
    kept = (*range(width), *range(width + len(computed), len(result.columns)))
    return replace(result, columns=tuple(result.columns[i] for i in kept))


def _computed(window: Window) -> dict[Scalar, int]:
    """Return the columns to compute for the functions; an engine may want literals as they are."""
    width = len(types_of(window.input))
    found: dict[Scalar, int] = {}
    scalars = [key.expr for key in window.order_key]
    literals: list[Scalar] = []
    for function in window.functions:
        scalars += [*function.args, *([] if function.filter is None else [function.filter])]
        if function.function in ("array_agg", "string_agg"):
            literals += function.args
    for scalar in dict.fromkeys(scalars):
        is_kept = isinstance(scalar, Literal) and scalar not in literals
        if not is_kept and not isinstance(scalar, Column):
            found[scalar] = width + len(found)
    return found


def _over_columns(window: Window, mapped: Map, computed: Mapping[Scalar, int]) -> Window:
    """Return the window over a Map that computes what its functions need."""

    def column(scalar: Scalar) -> Scalar:
        at = computed.get(scalar)
        return scalar if at is None else Column(at, type_of(scalar))

    over = with_scalars(window, column)
    assert isinstance(over, Window)
    functions = tuple(
        replace_node(function, frame=given.frame)  # whose offsets are not columns
        for function, given in zip(over.functions, window.functions, strict=True)
    )
    return replace_node(over, input=mapped, functions=functions)


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Rows with their numbers: in the partition, of their group of peers."""

    frame: Frame
    width: int

    @property
    def row(self) -> str:
        return self.frame.columns[self.width]

    @property
    def group(self) -> str:
        return self.frame.columns[self.width + 1]


class _Rendering:
    def __init__(self, renderer: Renderer, window: Window, frame: Frame, ordered: int) -> None:
        self.renderer = renderer
        self.dialect = renderer.dialect
        self.idioms = renderer.idioms
        self.window = window
        self.types = types_of(window.input)
        self.width = len(self.types)
        self.ordered = ordered  # the columns that break ties
        self.rows = self._expanded(frame)

    def _expanded(self, frame: Frame) -> Frame:
        """Return a row for each of the multiplicity of a row."""
        renderer = self.renderer
        rows = renderer.nest(renderer.consolidate(frame, self.types, ">"), self.width)
        repeated = (*rows.columns, self.idioms.repeated(rows.diff))
        expanded = replace(rows, columns=repeated, diff=ONE)
        nested = renderer.nest(renderer.select(expanded), self.width + 1)
        return replace(nested, columns=nested.columns[: self.width], diff=ONE)

    def result(self) -> Frame:
        """Return the rows with all functions."""
        functions = self.window.functions
        native = [self._is_native(f) and not self._is_framed(f) for f in functions]
        if all(native):
            values = tuple(map(self._over, functions))
            columns = (*self.rows.columns, *values)
            return self._nest(replace(self.rows, columns=columns), len(columns))
        values = tuple(
            self._over(function) if is_native else "NULL"
            for function, is_native in zip(functions, native, strict=True)
        )
        row = self._places("row_number", self._total())
        group = self._places("dense_rank", self._keys())
        columns = (*self.rows.columns, row, group, *values)
        select = self.renderer.select(replace(self.rows, columns=columns))
        table = self.renderer.bind(select)
        return self._joined(table, native)

    def _nest(self, frame: Frame, width: int) -> Frame:
        return self.renderer.nest(self.renderer.select(frame), width)

    # --- orders

    def _keys(self, frame: Frame | None = None) -> list[Sort]:
        """Return the sort keys of the order, without the columns that break ties."""
        columns = (frame or self.rows).columns
        return [
            Sort(
                self.dialect.key(self.dialect.scalar(key.expr, columns), type_of(key.expr)),
                key.descending,
                key.nulls_first,
            )
            for key in self.window.order_key
        ]

    def _total(self, rows: Frame | None = None) -> list[Sort]:
        """Return the sort keys of the order of all rows."""
        order = self._keys(rows)
        columns = (rows or self.rows).columns
        each = [
            self.dialect.total_order(column, type)
            for column, type in list(zip(columns, self.types, strict=False))[: self.ordered]
        ]
        order += (Sort(terms[0]) for terms in each)
        order += (Sort(term) for terms in each for term in terms[1:])
        return order

    def _partition(self, frame: Frame) -> list[str]:
        keys = [self.dialect.key(frame.columns[i], self.types[i]) for i in self.window.partition]
        return [*keys, *frame.carry]

    def _clause(self, order: Sequence[Sort], frame: str = "", rows: Frame | None = None) -> str:
        by = ", ".join(sort.sql for sort in order) or "1"
        return f" OVER ({partition_by(self._partition(rows or self.rows))}ORDER BY {by}{frame})"

    def _places(self, function: str, order: Sequence[Sort]) -> str:
        return f"CAST({function}(){self._clause(order)} AS BIGINT)"

    # --- functions over the engine's windows

    def _is_framed(self, function: WindowFunction) -> bool:
        """Return whether a function is computed for all frames of a partition at once."""
        frame = function.frame
        whole = frame.start is None and frame.end is None
        if function.function not in FRAMED or whole or frame.exclude != "nothing":
            return False
        return self._is_native(replace_node(function, function="min"))

    def _is_native(self, function: WindowFunction) -> bool:
        frame = function.frame
        edges = self._edges(function)
        if edges is not None and any(
            bound is not None and edges.is_infinite(bound) for bound in (frame.start, frame.end)
        ):
            return False
        return self.idioms.has_window(function)

    def _edges(self, function: WindowFunction) -> Edges | None:
        return Edges.of(self.dialect, self.window, function.frame)

    def _over(self, function: WindowFunction) -> str:
        """Return a function over a window of the engine."""
        match function.function:
            case "row_number":
                return self._places("row_number", self._total())
            case "rank" | "dense_rank":
                return self._places(function.function, self._keys())
        args = [self.dialect.scalar(arg, self.rows.columns) for arg in function.args]
        if function.function in ("lag", "lead"):
            far = function.args[1]
            if isinstance(far, Literal) and isinstance(far.value, int):
                args[1] = str(min(max(far.value, -MOST_ROWS), MOST_ROWS))
            return f"{function.function}({', '.join(args)}){self._clause(self._total())}"
        if function.function == "last_known":
            frame = " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
            return f"{self.idioms.last_known(args[0])}{self._clause(self._total(), frame)}"
        if is_first(function):
            frame = " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
            return f"first_value({args[0]}){self._clause(self._total(), frame)}"
        by_rows = function.frame.unit == "rows"
        order, frame = self._framing(function, self.rows)
        over = self._clause(order, f" {frame}")
        if function.function in ("nth_value", "last_value"):
            within = ", ".join(sort.sql for sort in self._total())
            inside = ", ".join(args) + ("" if by_rows else f" ORDER BY {within}")
            return f"{function.function}({inside}){over}"
        return self._aggregate(function, self.rows, ONE, self._total(), over, [])

    def _aggregate(
        self,
        function: WindowFunction,
        rows: Frame,
        diff: str,
        order: Sequence[Sort],
        over: str,
        conditions: Sequence[str],
    ) -> str:
        core = aggregate_of(function)

        def sql(scalar: ir.Scalar) -> str:
            return self.dialect.scalar(scalar, rows.columns)

        if function.filter is not None:
            conditions = [*conditions, f"({sql(function.filter)})"]
        args = [render_argument(self.renderer, core, arg, sql) for arg in core.args]
        result = self.dialect.type_name(core.type)
        return self.idioms.aggregate(core, args, conditions, order, diff, result, over)

    # --- functions over joined rows

    def _joined(self, table: str, native: Sequence[bool]) -> Frame:
        """Return the numbered rows of `table`, joined with the values of the other functions."""
        all_columns = self.width + 2 + len(native)
        rows = _Numbered(self.renderer.table(table, all_columns), self.width)
        source, columns = rows.frame.source, list(rows.frame.columns)
        for n, function in enumerate(self.window.functions):
            if native[n]:
                continue
            of = self._framed if self._is_framed(function) else self._of_frames
            found = of(table, all_columns, function)
            keys = len(self.window.partition)
            values = self.renderer.table(f"({found})", keys + 2)
            on = self._same(
                [*self._partition(rows.frame), rows.row],
                [*values.columns[:keys], *values.carry, values.columns[keys]],
            )
            source = f"{source} LEFT JOIN {values.source} ON {' AND '.join(on)}"
            columns[self.width + 2 + n] = values.columns[keys + 1]
        kept = (*columns[: self.width], *columns[self.width + 2 :])
        return self._nest(replace(rows.frame, source=source, columns=kept), len(kept))

    def _same(self, ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
        return [f"{a} IS NOT DISTINCT FROM {b}" for a, b in zip(ours, theirs, strict=True)]

    def _of_frames(self, table: str, all_columns: int, function: WindowFunction) -> str:
        """Return the SELECT of the partition, the number and the function's value of each row."""
        renderer = self.renderer
        here = _Numbered(renderer.table(table, all_columns), self.width)
        there = _Numbered(renderer.table(table, all_columns), self.width)
        by = [*self._partition(here.frame), here.row]
        on = self._same(by[:-1], self._partition(there.frame))
        keys = len(self.window.partition)
        items = [f"{sql} AS c{i}" for i, sql in enumerate([*by[:keys], here.row])]
        items += [
            f"{sql} AS {name}" for sql, name in zip(here.frame.carry, renderer.carry, strict=True)
        ]
        if function.function in ("lag", "lead"):
            value, far, default = function.args
            rows = self.dialect.scalar(far, here.frame.columns)
            sign = "-" if function.function == "lag" else "+"
            on.append(f"{there.row} = {here.row} {sign} {rows}")
            shown = self.dialect.scalar(value, there.frame.columns)
            other = self.dialect.scalar(default, here.frame.columns)
            found = (
                f"CASE WHEN {rows} IS NULL THEN NULL WHEN {there.row} IS NULL THEN {other} "
                f"ELSE {shown} END"
            )
            group = ""
        else:
            on += self._in_frame(function.frame, here, there)
            found = self._of_frame(function, here, there)
            group = f" GROUP BY {', '.join(by)}"
        items += [f"{found} AS c{keys + 1}", f"{ONE} AS d"]
        return (
            f"SELECT {', '.join(items)} FROM {here.frame.source} LEFT JOIN {there.frame.source} "
            f"ON {' AND '.join(on) or 'true'}{group}"
        )

    def _framed(self, table: str, all_columns: int, function: WindowFunction) -> str:
        """Return the same as `_of_frames`, of a list of the partition's values and frames."""
        renderer = self.renderer
        rows = _Numbered(renderer.table(table, all_columns), self.width)
        keys = len(self.window.partition)
        order, frame = self._framing(function, rows.frame)
        over = self._clause(order, f" {frame}", rows.frame)
        args = {
            name: self._double(function, arg, rows.frame.columns)
            for name, arg in zip("xy", function.args, strict=False)
        }
        parts = {**args, "lo": f"min({rows.row}){over}", "hi": f"max({rows.row}){over}"}
        partition = self._partition(rows.frame)
        carried = tuple(f"p{keys + i}" for i in range(len(renderer.carry)))
        by = [*(f"p{i}" for i in range(keys)), *carried]
        items = [f"{sql} AS {name}" for sql, name in zip(partition, by, strict=True)]
        items += [f"{rows.row} AS n", *(f"{sql} AS {name}" for name, sql in parts.items())]
        inner = f"SELECT {', '.join(items)} FROM {rows.frame.source}"
        values = self.idioms.framed(FRAMED[function.function], "n", {name: name for name in parts})
        group = f" GROUP BY {', '.join(by)}" if by else ""
        listed = f"SELECT {', '.join([*by, f'{values} AS v'])} FROM ({inner}) AS y{group}"
        pairs = self.idioms.unnest(self.idioms.numbered("v"))
        unnested = f"SELECT {', '.join([*by, f'{pairs} AS e'])} FROM ({listed}) AS y"
        items = [f"{name} AS c{i}" for i, name in enumerate(by[:keys])]
        items += [f"CAST(e.n AS BIGINT) AS c{keys}", f"e.e AS c{keys + 1}"]
        items += [f"{a} AS {b}" for a, b in zip(carried, renderer.carry, strict=True)]
        return f"SELECT {', '.join([*items, f'{ONE} AS d'])} FROM ({unnested}) AS y"

    def _double(self, function: WindowFunction, arg: Scalar, columns: Sequence[str]) -> str:
        """Return an argument as a float, NULL where the filter leaves it out."""
        value = f"CAST({self.dialect.scalar(arg, columns)} AS DOUBLE)"
        if function.filter is None:
            return value
        return f"CASE WHEN {self.dialect.scalar(function.filter, columns)} THEN {value} END"

    def _framing(self, function: WindowFunction, rows: Frame) -> tuple[list[Sort], str]:
        """Return the order of an OVER, and its frame clause."""
        order = self._total(rows) if function.frame.unit == "rows" else self._keys(rows)
        edges = self._edges(function)
        if edges is not None:
            (sort,) = order
            order = [replace(sort, key=edges.key(rows.columns))]
        return order, frame_sql(function.frame, edges)

    def _of_frame(self, function: WindowFunction, here: _Numbered, there: _Numbered) -> str:
        """Return the aggregate of the rows `there` in the frame of a row."""
        present = f"{there.row} IS NOT NULL"
        diff = f"CASE WHEN {present} THEN 1 ELSE 0 END"
        order = [Sort(there.row)]
        if function.function not in ("nth_value", "last_value"):
            return self._aggregate(function, there.frame, diff, order, "", [present])
        value = self.dialect.scalar(function.args[0], there.frame.columns)
        values = self.idioms.collect(value, "1", order, [present])
        if function.function == "last_value":
            return self.idioms.element(values, "-1")
        nth = f"max({self.dialect.scalar(function.args[1], here.frame.columns)})"
        return self.idioms.element(values, nth)

    def _in_frame(self, frame: ir.Frame, here: _Numbered, there: _Numbered) -> list[str]:
        """Return the conditions under which a row `there` is in the frame of the row `here`."""
        edges = Edges.of(self.dialect, self.window, frame)
        conditions = []
        for bound, is_start in ((frame.start, True), (frame.end, False)):
            if bound is None:
                continue
            compare = ">=" if is_start else "<="
            sign = "-" if bound.side == "preceding" else "+"
            places = (there.row, here.row) if frame.unit == "rows" else (there.group, here.group)
            within = f"{places[0]} {compare} {places[1]}"
            if edges is None or bound.offset is None:
                conditions.append(f"{within} {sign} {count_of(bound)}")
            else:
                keys = (edges.key(here.frame.columns), edges.key(there.frame.columns))
                conditions.append(edges.within(bound, *keys, within, is_start=is_start))
        match frame.exclude:
            case "current row":
                conditions.append(f"{there.row} <> {here.row}")
            case "group":
                conditions.append(f"{there.group} <> {here.group}")
            case "ties":
                conditions.append(f"({there.group} <> {here.group} OR {there.row} = {here.row})")
        return conditions
