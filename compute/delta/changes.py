"""Renders the changes of a relation in a window as one SELECT over changes and old contents.

Each trace has two tables: `s3`, its contents just before the window, and `d3`, its updates in the
window, with times `t`. Usually only some traces have changed. A relation whose inputs are unchanged
is unchanged, and is not rendered at all.

- *Linear* operators apply to the updates directly.
- *Joins*: for each changed input, its updates are joined with the inputs before it as of the
  update's time, and with the inputs after it as of just before that time.
- *Groups*: the points (key, time) at which a group changes are those of the updates. The group is
  evaluated at each point and before the window. At each point its new result is inserted and its
  previous one retracted. Rows are looked up by key and time; if sums suffice, they are running
  sums over the points.

The contents of a trace at a time are read from *spans*: its contents before the window, and for
each row with updates in the window its multiplicity from one update to the next. So a row that
changes n times in a window joins each of n others once, not n times, n - 1 of which would cancel.

The time "before the window" is written as -1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from foreshore.compute.delta.differentiate import Trace
from foreshore.compute.render.aggregates import Idioms, weight
from foreshore.compute.render.dialect import Dialect
from foreshore.compute.render.frame import Frame, partition_by, types_of
from foreshore.compute.render.groups import render_argument, render_reduce, render_threshold
from foreshore.compute.render.render import Renderer
from foreshore.compute.render.top_k import render_top_k
from foreshore.expr.columns import type_of
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
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.types import ColumnType, SqlType

BEFORE = "CAST(-1 AS BIGINT)"
NEVER = f"CAST({(1 << 63) - 1} AS BIGINT)"


def state_table(trace: Trace) -> str:
    """Return the name of the table of a trace's contents before the window."""
    return f"s{trace.number}"


def input_table(id: GlobalId) -> str:
    """Return the name of the table of an input's updates in the window."""
    return f"u_{id}"


def change_table(trace: Trace) -> str:
    """Return the name of the table of a trace's updates in the window."""
    return f"d{trace.number}" if trace.leaf is None else input_table(trace.leaf)


def accumulators(sums: Reduce, idioms: Idioms) -> list[str]:
    """Return the types of the sums kept for `sums`; the first is the number of rows."""
    types = ["BIGINT"]
    for aggregate in sums.aggregates:
        types.append("BIGINT")
        if aggregate.function == "sum":
            types.append(idioms.accumulator_type(type_of(aggregate.args[0])))
    return types


class TraceRenderer(Renderer):
    """Renders contents: relations over traces, and the traces themselves, from `s` tables."""

    def __init__(
        self,
        dialect: Dialect,
        idioms: Idioms,
        sources: Mapping[GlobalId, str],
        traces: Sequence[Trace],
        carry: tuple[str, ...] = (),
        constant: Callable[[Constant], str] | None = None,
    ) -> None:
        tables = {trace.number: state_table(trace) for trace in traces}
        super().__init__(dialect, idioms, sources, tables, carry, constant)
        self.traces = traces

    def frame(self, relation: Relation) -> Frame:
        """Return `relation` as a frame; a reduction over accumulators reads their sums."""
        match relation:
            case Reduce(input=LocalGet(number=number)) if self.traces[number].sums is not None:
                trace = self.traces[number]
                sums = self._sum_up(trace, state_table(trace))
                return self._read_off(relation, f"({sums})", ())
            case _:
                return super().frame(relation)

    def contents(self, trace: Trace) -> str:
        """Return the statement for a trace's contents."""
        frame = self.frame(trace.body)
        if trace.sums is not None:
            return self.with_ctes(self.accumulate(trace.sums, frame))
        return self.with_ctes(self.consolidate(frame, types_of(trace.body)))

    def accumulate(self, sums: Reduce, frame: Frame) -> str:
        """Return the SELECT of the sums over a frame, by the key and the carried columns."""
        frame = self.simple(frame)

        def sql(scalar: object) -> str:
            assert isinstance(scalar, Column)
            return frame.columns[scalar.index]

        items = [
            f"{self.dialect.representative(sql(key), type_of(key))} AS c{i}"
            for i, key in enumerate(sums.group_key)
        ]
        items += [f"{c} AS {name}" for c, name in zip(frame.carry, self.carry, strict=True)]
        by = f" GROUP BY {', '.join(str(i + 1) for i in range(len(items)))}" if items else ""
        diff = frame.diff
        totals = [f"sum({diff})"]
        for aggregate in sums.aggregates:
            conditions = [] if aggregate.filter is None else [sql(aggregate.filter)]
            present = [*conditions, *(f"{sql(arg)} IS NOT NULL" for arg in aggregate.args)]
            totals.append(f"sum({weight(present, diff)})")
            if aggregate.function == "sum":
                argument = render_argument(self, aggregate, aggregate.args[0], sql)
                totals.append(self.idioms.product_sum(argument, conditions, diff))
        for i, (total, type) in enumerate(
            zip(totals, accumulators(sums, self.idioms), strict=True)
        ):
            items.append(f"CAST(coalesce({total}, 0) AS {type}) AS a{i}")
        return f"SELECT {', '.join(items)}{self.clauses(frame)}{by}"

    def _sum_up(self, trace: Trace, table: str) -> str:
        """Return the SELECT of a table of accumulators with one entry for each key."""
        assert trace.sums is not None
        keys = [f"c{i}" for i in range(len(trace.columns))]
        sums = [f"sum(a{i}) AS a{i}" for i in range(len(accumulators(trace.sums, self.idioms)))]
        if not keys:
            sums = [f"coalesce(sum(a{i}), 0) AS a{i}" for i in range(len(sums))]
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join([*keys, *sums])} FROM {table}{by}"

    def _read_off(self, reduce: Reduce, item: str, carry: tuple[str, ...]) -> Frame:
        """Return the rows of a reduction whose accumulators are the FROM item."""
        self._names += 1
        alias = f"x{self._names}"
        keys = len(reduce.group_key)
        columns = [f"{alias}.c{i}" for i in range(keys)]
        at = 1
        for aggregate in reduce.aggregates:
            if aggregate.function == "sum":
                columns.append(self._sum(aggregate, f"{alias}.a{at}", f"{alias}.a{at + 1}"))
                at += 2
            else:
                columns.append(f"CAST({alias}.a{at} AS BIGINT)")
                at += 1
        return Frame(
            f"{item} AS {alias}",
            tuple(columns),
            "CAST(1 AS BIGINT)",
            tuple(f"{alias}.{name}" for name in carry),
            (f"{alias}.a0 > 0",) if keys else (),
            computed=True,
        )

    def _sum(self, aggregate: Aggregate, count: str, total: str) -> str:
        type = self.dialect.type_name(aggregate.type)
        return f"CASE WHEN {count} > 0 THEN CAST({total} AS {type}) END"


class ChangeRenderer(TraceRenderer):
    """Renders changes, given that only the tables of changes `changed` are not empty."""

    def __init__(
        self, dialect: Dialect, idioms: Idioms, traces: Sequence[Trace], changed: frozenset[str]
    ) -> None:
        super().__init__(dialect, idioms, {}, traces, ("t",))
        self.changed = changed
        self._spanned: dict[int, str] = {}  # the table of a trace's spans, by the trace's number

    def changes(self, relation: Relation) -> str | None:
        """Return the statement for the updates of an output, None if there are none."""
        frame = self.change(relation)
        if frame is None:
            return None
        if isinstance(relation, Reduce | TopK | Window | Threshold):  # its changes are consolidated
            return self.with_ctes(self.select(frame))
        return self.with_ctes(self.consolidate(frame, types_of(relation)))

    def trace_changes(self, trace: Trace) -> str | None:
        """Return the statement for the updates of a trace, None if there are none."""
        frame = self.change(trace.body)
        if frame is None:
            return None
        if trace.sums is not None:
            return self.with_ctes(self.accumulate(trace.sums, frame))
        if self._cancels(trace.body):
            return self.with_ctes(self.consolidate(frame, types_of(trace.body)))
        return self.with_ctes(self.select(frame))

    def _cancels(self, relation: Relation) -> bool:
        """Whether many of the updates of `relation` may cancel each other.

        They must not reach another join, which would multiply them. There are two cases:

        - If several inputs of a join changed, a row that was removed in the window has two entries
          in the spans of its input.
        - An outer join is its inner join, plus all rows with NULLs, minus the inner join's with
          NULLs. n updates become three times as many, and 3^k in k nested joins of this kind.
        """
        return any(
            isinstance(node, Negate)
            or (
                isinstance(node, Join)
                and sum(change_table(self._trace(i)) in self.changed for i in node.inputs) > 1
            )
            for node in walk_relations(relation)
        )

    def change(self, relation: Relation) -> Frame | None:
        """Return the updates of `relation` as a frame with times, None if there are none."""
        match relation:
            case Constant():
                return None
            case Get(id=id, columns=columns):
                table = input_table(id)
                return self.table(table, len(columns)) if table in self.changed else None
            case LocalGet(number=number):
                return self._table_of(self.traces[number])
            case Map() | Filter() | Project() | FlatMap() | Negate():
                frame = self.change(relation.input)
                return None if frame is None else self.linear(relation, frame)
            case Union(inputs=inputs):
                frames = [frame for frame in map(self.change, inputs) if frame is not None]
                return self.union(frames) if frames else None
            case Join(inputs=inputs):
                return self._join(relation, [self._trace(input) for input in inputs])
            case (
                Reduce(input=input)
                | TopK(input=input)
                | Window(input=input)
                | Threshold(input=input)
            ):
                trace = self._trace(input)
                if change_table(trace) not in self.changed:
                    return None
                at_points = (
                    self._rows_at_points(relation, trace)
                    if trace.sums is None
                    else self._sums_at_points(relation, trace)
                )
                return self._differences(at_points, types_of(relation))
            case Let() | TemporalFilter() | JoinOn() | LetRec() | Recursive():
                raise AssertionError(f"not a plan of changes: {relation}")

    def _trace(self, relation: Relation) -> Trace:
        assert isinstance(relation, LocalGet), relation
        return self.traces[relation.number]

    def _table_of(self, trace: Trace) -> Frame | None:
        table = change_table(trace)
        return self.table(table, len(trace.columns)) if table in self.changed else None

    # --- joins ---------------------------------------------------------------------------

    def _join(self, join: Join, traces: Sequence[Trace]) -> Frame | None:
        terms = []
        for i, trace in enumerate(traces):
            if change_table(trace) not in self.changed:
                continue
            changes = self.table(change_table(trace), len(trace.columns))
            met: list[tuple[str, str]] = []
            frames = [
                changes if j == i else self._as_of(other, changes.carry[0], met, after=j < i)
                for j, other in enumerate(traces)
            ]
            terms.append(self.join(join, frames))
        return self.union(terms) if terms else None

    def _as_of(self, trace: Trace, time: str, met: list[tuple[str, str]], *, after: bool) -> Frame:
        """Return a trace as of `time`, an expression over its join partner, or just before.

        `after` includes the trace's updates at that time. `met` are the spans of the other inputs
        so far: all inputs joined before the one that has the time must overlap.
        """
        width = len(trace.columns)
        if change_table(trace) not in self.changed:
            return self.table(state_table(trace), width, ())
        frame = self.table(f"({self._spans(trace)})", width, ("t", "e"))
        begin, end = frame.carry
        during = [
            f"{begin} <= {time} AND {time} < {end}"
            if after
            else f"{begin} < {time} AND {time} <= {end}",
            *(f"{begin} <= {other_end} AND {other} <= {end}" for other, other_end in met),
        ]
        met.append((begin, end))
        # Hides the condition from the optimizer as a join key: most pairs satisfy it, few have
        # equal keys.
        where = tuple(f"CASE WHEN {each} THEN true ELSE false END" for each in during)
        return replace(frame, carry=(), where=where)

    def _spans(self, trace: Trace) -> str:
        """Return the SELECT of a trace's entries, each valid from time t to e.

        Whatever happens in the window, the entries at any time are only the net difference from the
        contents before the window, and these contents.
        """
        columns = "".join(f"c{i}, " for i in range(len(trace.columns)))
        if trace.number not in self._spanned:
            forms = [
                form
                for i, column in enumerate(trace.columns)
                for form in self.dialect.identity(f"c{i}", column.type)
            ]
            # Of several updates of a row at one time, all have the same sum, and all but one have
            # an empty span.
            window = f"({partition_by(forms)}ORDER BY t)"
            spans = (
                f"SELECT {columns}t, coalesce(lead(t) OVER {window}, {NEVER}) AS e,"
                f" CAST(sum(d) OVER {window} AS BIGINT) AS d FROM {change_table(trace)}"
            )
            self._spanned[trace.number] = self.bind(
                f"SELECT {columns}t, e, d FROM ({spans}) AS y WHERE d <> 0 AND t < e"
            )
        return (
            f"SELECT {columns}{BEFORE} AS t, {NEVER} AS e, d FROM {state_table(trace)} "
            f"UNION ALL SELECT {columns}t, e, d FROM {self._spanned[trace.number]}"
        )

    # --- groups --------------------------------------------------------------------------

    def _rows_at_points(self, relation: Reduce | TopK | Window | Threshold, trace: Trace) -> Frame:
        """Return `relation` at each point, carrying the point as `p` and the next one as `q`."""
        columns = trace.columns
        changes = self.table(change_table(trace), len(columns))
        keys = key_columns(relation, columns)

        def forms(frame: Frame) -> list[str]:
            return [self.key_form(frame.columns[i], columns[i]) for i in keys]

        named = [f"{form} AS k{i}" for i, form in enumerate(forms(changes))]
        points = self._points(named, changes)
        rows = self.table(f"({self._spans(trace)})", len(columns), ("t", "e"))
        begin, end = rows.carry
        self._names += 1
        point = f"x{self._names}"
        on = [
            *(f"{form} IS NOT DISTINCT FROM {point}.k{i}" for i, form in enumerate(forms(rows))),
            f"{begin} <= {point}.p",
            f"{point}.p < {end}",
        ]
        at_points = Frame(
            f"{rows.source} INNER JOIN {points} AS {point} ON {' AND '.join(on)}",
            rows.columns,
            rows.diff,
            (f"{point}.p", f"{point}.q"),
        )
        self.carry = ("p", "q")
        match relation:
            case Reduce():
                return render_reduce(self, relation, at_points, None if keys else points)
            case TopK():
                return render_top_k(self, relation, at_points)
            case Window():
                return self.window(relation, at_points)
            case Threshold():
                return render_threshold(self, relation, at_points)

    def key_form(self, sql: str, column: ColumnType) -> str:
        """Return an expression with the same value for equal keys."""
        return self.dialect.key(self.dialect.representative(sql, column.type), column.type)

    def _points(self, named: Sequence[str], changes: Frame) -> str:
        """Return the table of the points with their successors; the first of a key is -1."""
        (time,) = changes.carry
        keys = [f"k{i}" for i in range(len(named))]
        points = (
            f"SELECT DISTINCT {', '.join([*named, f'{time} AS p'])} FROM {changes.source}"
            " UNION ALL "
            + (
                f"SELECT DISTINCT {', '.join([*named, f'{BEFORE} AS p'])} FROM {changes.source}"
                if keys
                else f"SELECT {BEFORE} AS p"
            )
        )
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        lead = f"lead(p) OVER ({partition}ORDER BY p) AS q"
        return self.bind(f"SELECT {', '.join([*keys, 'p', lead])} FROM ({points}) AS y")

    def _sums_at_points(self, relation: Relation, trace: Trace) -> Frame:
        """Return a reduction at each point, from running sums."""
        assert isinstance(relation, Reduce), relation
        assert trace.sums is not None
        changes, state = change_table(trace), state_table(trace)
        keys = [f"c{i}" for i in range(len(trace.columns))]
        sums = [f"a{i}" for i in range(len(accumulators(trace.sums, self.idioms)))]
        before = ", ".join([*(f"s.{key}" for key in keys), f"{BEFORE} AS t"])
        entries = f"SELECT {', '.join([before, *(f's.{a}' for a in sums)])} FROM {state} AS s"
        if keys:
            changed = self.bind(f"SELECT DISTINCT {', '.join(keys)} FROM {changes}")
            on = " AND ".join(f"s.{key} IS NOT DISTINCT FROM k.{key}" for key in keys)
            entries += f" INNER JOIN {changed} AS k ON {on}"
        else:
            zeros = ", ".join(f"0 AS {a}" for a in sums)
            entries += f" UNION ALL SELECT {BEFORE} AS t, {zeros}"
        entries += f" UNION ALL SELECT {', '.join([*keys, 't', *sums])} FROM {changes}"
        totals = ", ".join(f"sum({a}) AS {a}" for a in sums)
        by = ", ".join([*keys, "t"])
        totals = f"SELECT {by}, {totals} FROM ({entries}) AS y GROUP BY {by}"
        window = (f"PARTITION BY {', '.join(keys)} " if keys else "") + "ORDER BY t"
        running = [
            f"sum({a}) OVER ({window} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS {a}"
            for a in sums
        ]
        points = ["t AS p", f"lead(t) OVER ({window}) AS q"]
        self.carry = ("p", "q")
        select = f"SELECT {', '.join([*keys, *points, *running])} FROM ({totals}) AS y"
        return self._read_off(relation, f"({select})", self.carry)

    def _differences(self, at_points: Frame, types: Sequence[SqlType]) -> Frame:
        """Return the updates that lead from each point to the next."""
        width = len(types)
        values = self.nest(self.select(at_points), width)
        point, subscriber_ids = values.carry
        both = self.idioms.unnest(
            self.idioms.structs(
                [{"t": point, "d": values.diff}, {"t": subscriber_ids, "d": f"-{values.diff}"}]
            )
        )
        columns = [f"{column} AS c{i}" for i, column in enumerate(values.columns)]
        pairs = f"SELECT {', '.join([*columns, f'{both} AS e'])}{self.clauses(values)}"
        self.carry = ("t",)
        names = [f"y.c{i}" for i in range(width)]
        updates = Frame(
            f"({pairs}) AS y", tuple(names), "y.e.d", ("y.e.t",), ("y.e.t >= 0",), computed=True
        )
        return self.nest(self.consolidate(updates, types), width)


def key_columns(
    relation: Reduce | TopK | Window | Threshold, columns: Sequence[ColumnType]
) -> tuple[int, ...]:
    """Return the columns of the input by which an operator groups its rows."""
    match relation:
        case Reduce(group_key=group_key):
            return tuple(key.index for key in group_key if isinstance(key, Column))
        case TopK(group_key=group_key):
            return group_key
        case Window(partition=partition):
            return partition
        case Threshold():
            return tuple(range(len(columns)))
