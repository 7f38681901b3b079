"""From the window functions of a plan to their operator."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from foreshore.compute.flow.build_reduce import counted_when, summed
from foreshore.compute.flow.compiler import Compiler
from foreshore.compute.flow.convert import Form
from foreshore.compute.flow.frame_edges import Edges
from foreshore.compute.flow.frame_values import Rows
from foreshore.compute.flow.layout import Layout, Place, composed, kind_of, layout_of
from foreshore.compute.flow.operators.peer_groups import PeerGroups
from foreshore.compute.flow.operators.window import (
    Computed,
    Frames,
    RowParts,
    Totals,
    WindowFunctions,
)
from foreshore.compute.flow.partitions import Part
from foreshore.compute.flow.reach import Reach, is_running, reach_of
from foreshore.compute.flow.sums import SumTable
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.render.frames import count_of
from foreshore.expr import ir
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.equality import has_many_forms
from foreshore.expr.ir import Frame, Scalar
from foreshore.expr.scalars import frame_offsets
from foreshore.expr.windows import aggregate_of, orders_peers
from foreshore.types import ColumnType

if TYPE_CHECKING:
    from foreshore.compute.flow.build import Builder


def build_window(builder: "Builder", window: ir.Window) -> int:
    """Build window functions; return the operator's number."""
    return _WindowBuilder(builder, window).build()


class _WindowBuilder:
    def __init__(self, builder: "Builder", window: ir.Window) -> None:
        self._builder = builder
        self._window = window
        self._edges = Edges(window)
        for offset in dict.fromkeys(o for f in window.functions for o in frame_offsets(f)):
            builder.constant_error(offset)
        checks = [key.expr for key in window.order_key]
        for function in window.functions:
            checks += _checked(function)
        self._input = builder.checked(window, window.input, checks)
        columns = columns_of(window.input)
        partition: list[Scalar] = [
            ir.Column(i, columns[i].type, columns[i].nullable) for i in window.partition
        ]
        self._input = builder.at_owners(self._input, partition)

    def build(self) -> int:
        """Build the operator."""
        compiler = self._builder.compiler(self._input)
        columns = columns_of(self._window.input)
        width = self._put_key(compiler)
        peers, row = self._put_order(compiler)
        below = layout_of(columns)
        compiler.put_row(below.columns)
        args = len(compiler.texts)
        arguments = self._put_arguments(compiler)
        program = compiler.program()
        values = columns_of(self._window)[len(columns) :]
        layout = composed([below, layout_of(values)])
        reach = reach_of(self._window)
        totals, places = self._totals(reach)
        functions = self._computed(arguments, layout.places[len(columns) :], places)
        spine = self._builder.spine(width, program.texts)
        parts = RowParts(peers, row, args)
        context = self._builder.context
        return self._builder.add(
            WindowFunctions(
                self._input,
                layout,
                program,
                spine,
                parts,
                functions,
                reach,
                totals,
                self._peer_groups(reach),
                context,
            )
        )

    def _put_order(self, compiler: Compiler) -> tuple[int, int]:
        """Put out the words that order rows; return where those of peers and all of them end."""
        self._put_keys_of_order(compiler)
        peers = len(compiler.texts)
        if any(map(orders_peers, self._window.functions)):
            for scalar in compiler.columns:
                compiler.put_order(scalar, descending=False, nulls=1)
            for scalar in compiler.columns:
                compiler.put_shown(scalar)
        return peers, len(compiler.texts)

    def _put_arguments(self, compiler: Compiler) -> Layout:
        """Put out the functions' arguments and filters, then the edges of frames by distance."""
        layouts = []
        for function in self._window.functions:
            is_extreme = function.function in ("min", "max")
            if is_extreme:
                _require_ranked(function)
            filter = () if function.filter is None else (function.filter,)
            layouts.append(
                self._put(compiler, (*function.args, *filter), "key" if is_extreme else "row")
            )
        layouts.append(self._put(compiler, self._edges.scalars, "row"))
        return composed(layouts)

    def _put(self, compiler: Compiler, scalars: Sequence[Scalar], form: Form) -> Layout:
        columns = tuple(ColumnType(type_of(scalar)) for scalar in scalars)
        compiler.put(columns, [compiler.resolved(scalar) for scalar in scalars], form)
        return layout_of(columns)

    def _totals(self, reach: Reach | None) -> tuple[Totals | None, list[int]]:
        """Return the sums that running functions need, and where each function has its own."""
        none = [-1] * len(self._window.functions)
        if reach is None or not reach.to_end:
            return None, none
        compiler = self._builder.compiler(self._input)
        width = self._put_key(compiler)
        kinds: list[int] = []
        places = []
        for function in self._window.functions:
            if not is_running(function):
                places.append(-1)
                continue
            core = replace(aggregate_of(function), filter=function.filter)
            places.append(1 + sum(kinds))
            condition = counted_when(core) if core.args or core.filter is not None else ir.TRUE
            compiler.put_scalar(compiler.resolved(condition), 1)
            kinds.append(1)
            if function.function == "sum":
                (scalar,) = summed(core)
                compiler.put_scalar(compiler.resolved(scalar), 2)
                kinds.append(2)
        table = SumTable(width, np.array(kinds, np.int64))
        return Totals(compiler.program(), table), places

    def _peer_groups(self, reach: Reach | None) -> PeerGroups | None:
        """Return the counts of groups of peers, if a function needs them."""
        if reach is None or all(f.function != "dense_rank" for f in self._window.functions):
            return None
        compiler = self._builder.compiler(self._input)
        key = self._put_key(compiler)
        self._put_keys_of_order(compiler)
        program = compiler.program()
        return PeerGroups(program, program.width, key, self._builder.context)

    def _put_keys_of_order(self, compiler: Compiler) -> None:
        for order in self._window.order_key:
            nulls = -1 if order.nulls_first else 1
            expr = compiler.resolved(order.expr)
            compiler.put_order(expr, descending=order.descending, nulls=nulls)

    def _put_key(self, compiler: Compiler) -> int:
        """Put out the partition's columns; return their words."""
        columns = columns_of(self._window.input)
        key = [compiler.columns[i] for i in self._window.partition]
        compiler.put([columns[i] for i in self._window.partition], key, "key")
        return len(compiler.texts)

    def _computed(
        self, arguments: Layout, values: Sequence[Place], totals: Sequence[int]
    ) -> list[Computed]:
        """Return the functions, given the places of their arguments and values."""
        rest = list(arguments.places)
        functions = []
        each = zip(self._window.functions, values, totals, strict=True)
        for function, place, total in each:
            args = tuple(rest.pop(0) for _ in function.args)
            filter = rest.pop(0) if function.filter is not None else None
            functions.append((function, args, filter, place, total))
        edges = self._edges.placed(rest)
        return [
            Computed(function, args, filter, _frames(function.frame, edges), place, total)
            for function, args, filter, place, total in functions
        ]


def _require_ranked(function: ir.WindowFunction) -> None:
    """Raise Unsupported if Arrow has no ranks of the argument's type."""
    type = type_of(function.args[0])
    if kind_of(type) not in ("int", "float", "wide", "bytes") or has_many_forms(type):
        raise Unsupported(f"{function.function} of {type} over a window")


def _checked(function: ir.WindowFunction) -> Sequence[Scalar]:
    """Return the scalars whose errors count; those of arguments only where the filter is TRUE."""
    if function.filter is None:
        return function.args
    guarded = [
        ir.Case(((function.filter, arg),), ir.Literal(None, type_of(arg)), type_of(arg))
        for arg in function.args
    ]
    return [function.filter, *guarded]


def _frames(frame: Frame, edges: Edges) -> Frames:
    """Return the frames of rows."""

    def frames(rows: Rows) -> list[Part]:
        return rows.partitions.frame(frame, count_of, partial(edges.rows_at, rows))

    return frames
