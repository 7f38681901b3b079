"""Views that stand on views: from the bodies of all of them to one relation over collections.

All bodies below a view are put into one another and optimized once, so the time grows with their
sizes together, and not with the depth of the stack for each of them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from foreshore.expr.ir import Get, Let, LetRec, LocalGet, Relation
from foreshore.expr.recursion import single_relation
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import inputs_of, sources_of, walk_relations, with_inputs
from foreshore.ids import GlobalId
from foreshore.sql.bind.result import lower_and_optimize_block
from foreshore.sql.bind.side_effects import has_side_effects
from foreshore.sql.parse.grammar.base import too_deep
from foreshore.view_over import ViewOver

MAX_LEVELS: Final = 2_000  # of views on one another: recursion over their relation is safe


def view_over(body: Relation, view_of: Callable[[GlobalId], ViewOver | None]) -> ViewOver:
    """Return a view by its body; `view_of` returns the views that it reads.

    Other views contain it, and do not name it, if it has parts that must have other numbers at each
    use: calls with side effects and recursions.
    """
    found = {id: view_of(id) for id in sources_of(body)}
    below = {id: view for id, view in found.items() if view is not None}
    is_named = not any(
        isinstance(node, LetRec) or any(map(has_side_effects, scalars_of(node)))
        for node in walk_relations(body)
    )
    return ViewOver(body, below, lambda each: expand(each), is_named=is_named)


def expand(view: ViewOver) -> Relation:
    """Return a view's relation over collections; raises StatementTooComplex."""
    if view.levels > MAX_LEVELS:
        raise too_deep()
    expansion = _Expansion()
    for each in _bottom_up(view):
        expansion.add(each)
    return single_relation(lower_and_optimize_block(expansion.relations[view]))


class _Expansion:
    """Relations of views over collections, in which each Let and LetRec has numbers of its own."""

    def __init__(self) -> None:
        self.relations: dict[ViewOver, Relation] = {}
        self._lets = 0

    def add(self, view: ViewOver) -> None:
        """Expand a view; those below it have been."""
        below: Mapping[GlobalId, Relation] = {}
        if view.known is None:
            below = {id: self.relations[each] for id, each in view.below.items()}
        self.relations[view] = self._over(view.known or view.body, below, {})

    def _new(self) -> int:
        self._lets += 1
        return self._lets

    def _over(
        self, node: Relation, below: Mapping[GlobalId, Relation], numbers: dict[int, int]
    ) -> Relation:
        match node:
            case Get(id=id):
                return below.get(id, node)
            case LocalGet(number=number):
                return LocalGet(numbers[number], node.columns)
            case Let(number=number):
                new = self._new()
                return Let(
                    new,
                    self._over(node.value, below, numbers),
                    self._over(node.body, below, {**numbers, number: new}),
                )
            case LetRec(numbers=old):
                numbers = {**numbers, **{each: self._new() for each in old}}
                node = replace(node, numbers=tuple(map(numbers.__getitem__, old)))
        inputs = inputs_of(node)
        made = tuple(self._over(each, below, numbers) for each in inputs)
        return with_inputs(node, made)


def _bottom_up(view: ViewOver) -> list[ViewOver]:
    """Return the views that one is made of, each once and after those below it."""
    order: list[ViewOver] = []
    seen: set[ViewOver] = set()
    stack: list[tuple[ViewOver, bool]] = [(view, False)]
    while stack:
        each, is_ready = stack.pop()
        if is_ready:
            order.append(each)
        elif each not in seen:
            seen.add(each)
            stack.append((each, True))
            if each.known is None:
                stack.extend((below, False) for below in each.below.values())
    return order
