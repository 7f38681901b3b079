"""The windows of a query: named definitions, the functions over each, and the rows with them.

A call is bound to a scalar over `WindowRef`s, the results of core window functions, which are
collected by window: partition, order and the functions' frames. When the query has been grouped,
`Windows.join` appends the columns of all functions to its rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import msgspec

from foreshore.errors import UndefinedObject, WindowingError
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Column,
    Frame,
    Node,
    OrderKey,
    Relation,
    Scalar,
    Window,
    WindowFunction,
)
from foreshore.expr.scalars import with_frame_offsets
from foreshore.expr.windows import DEFAULT
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import AddedColumns
from foreshore.sql.rewrite.scalars import map_scalar, push_down
from foreshore.types import SqlType


class WindowRef(Node, frozen=True, cache_hash=True):
    """The result of the `index`-th core window function, used only during binding."""

    index: int
    type: SqlType
    nullable: bool = True


@dataclass(frozen=True)
class BoundWindow:
    """A bound definition; `framed` if it has a frame clause."""

    partition: tuple[Scalar, ...]
    order_by: tuple[OrderKey, ...]
    frame: Frame = DEFAULT
    framed: bool = False

    @property
    def rows(self) -> "BoundWindow":
        """Return the window without its frame, which functions have of their own."""
        return BoundWindow(self.partition, self.order_by)

    def mapped(self, change: Callable[[Scalar], Scalar]) -> "BoundWindow":
        """Return the window with `change` applied to its scalars."""
        order = tuple(msgspec.structs.replace(k, expr=change(k.expr)) for k in self.order_by)
        return replace(self, partition=tuple(map(change, self.partition)), order_by=order)


@dataclass
class Windows:
    """The windows of one query; equal functions over equal windows are one."""

    named: dict[str, BoundWindow] = field(default_factory=dict)
    calls: list[tuple[BoundWindow, WindowFunction]] = field(default_factory=list)

    def add(self, window: BoundWindow, function: WindowFunction) -> Scalar:
        """Return the reference to `function` over `window`."""
        call = (window.rows, function)
        if call not in self.calls:
            self.calls.append(call)
        # A scalar during binding, which never occurs in a plan.
        index = self.calls.index(call)
        return WindowRef(index, function.type, function.nullable)  # type: ignore[return-value]

    def find(self, name: str, at: int) -> BoundWindow:
        """Return the window `name` of the WINDOW clause."""
        if name not in self.named:
            raise UndefinedObject(f'window "{name}" does not exist', position=at + 1)
        return self.named[name]

    def change(self, change: Callable[[Scalar], Scalar]) -> None:
        """Apply `change` to all scalars over the query's rows."""
        self.named = {name: window.mapped(change) for name, window in self.named.items()}
        self.calls = [
            (window.mapped(change), _changed(function, change)) for window, function in self.calls
        ]

    def join(self, relation: Relation) -> tuple[Relation, Callable[[Scalar], Scalar]]:
        """Return `relation` with all functions' columns, and the rewriting of references."""
        places: dict[int, Column] = {}
        for window in dict.fromkeys(window for window, _ in self.calls):
            own = [i for i, (other, _) in enumerate(self.calls) if other == window]
            placing = AddedColumns(columns_of(relation))
            partition = tuple(dict.fromkeys(map(placing.place, window.partition)))
            functions = tuple(self.calls[i][1] for i in own)
            relation = Window(placing.relation(relation), partition, window.order_by, functions)
            width = placing.width
            for place, i in enumerate(own, width):
                function = self.calls[i][1]
                places[i] = Column(place, function.type, function.nullable)

        def value_of(node: Scalar, depth: int) -> Scalar | None:
            if not isinstance(node, WindowRef):
                return None
            return push_down(places[node.index], depth) if depth else places[node.index]

        return relation, lambda scalar: map_scalar(scalar, value_of)


def _changed(function: WindowFunction, change: Callable[[Scalar], Scalar]) -> WindowFunction:
    return WindowFunction(
        function.function,
        tuple(map(change, function.args)),
        function.type,
        with_frame_offsets(function.frame, change),
        None if function.filter is None else change(function.filter),
    )


def uses_windows(scalars: Iterable[Scalar]) -> bool:
    """Return whether any of `scalars` refers to a window function."""
    found = False

    def look(node: Scalar, depth: int) -> Scalar | None:
        nonlocal found
        found = found or isinstance(node, WindowRef)
        return None

    for scalar in scalars:
        map_scalar(scalar, look)
    return found


def derived(base: BoundWindow, definition: ast.WindowDefinition, *, in_clause: bool) -> None:
    """Raise the error of a definition that may not be based on `base`.

    `in_clause` says that it is one of the WINDOW clause, not of OVER.
    """
    name = definition.base
    if definition.partition_by:
        raise WindowingError(
            f'cannot override PARTITION BY clause of window "{name}"', position=definition.at + 1
        )
    if definition.order_by and base.order_by:
        raise WindowingError(
            f'cannot override ORDER BY clause of window "{name}"', position=definition.at + 1
        )
    if base.framed:
        bare = not (in_clause or definition.order_by or definition.frame)
        raise WindowingError(
            f'cannot copy window "{name}" because it has a frame clause',
            hint="Omit the parentheses in this OVER clause." if bare else None,
            position=definition.at + 1,
        )
