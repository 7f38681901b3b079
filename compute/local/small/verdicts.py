"""Whether plans with arguments are known as small, remembered by the plan and its arguments.

A statement binds its plan to other arguments each time that it runs, and to look at all of a plan
takes longer than to evaluate it over a few rows. What is estimated of a plan may depend on each
value. Of integers the size counts, and of arrays of them the length, and only roughly.
"""

from collections.abc import Sequence
from functools import lru_cache

from foreshore.compute.local.small.evaluate import is_small_plan
from foreshore.expr.ir import Environment, Relation
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.types import Datum

MOST = 64  # verdicts; few, as values may be long


class Verdicts:
    """The verdicts on plans that were asked for most recently."""

    def __init__(self) -> None:
        self._known: dict[tuple[Relation, tuple[object, ...]], bool] = {}

    def is_small(self, plan: Relation, args: Sequence[Datum], bound: Relation) -> bool:
        """Return `is_small_plan(bound)`, which is `plan` with `args`; none of these is long.

        Integers, and lengths of arrays of them, count up to the next power of two.
        """
        key = plan, tuple(map(_shape, args))
        known = self._known.get(key)
        if known is None:
            known = is_small_plan(bound)
            if not _asks_session(plan):
                if len(self._known) >= MOST:
                    self._known.clear()
                self._known[key] = known
        return known


def _shape(datum: Datum) -> object:
    if type(datum) is int:
        return "integer", datum.bit_length(), datum < 0
    if isinstance(datum, tuple) and datum and type(datum[0]) is int:
        return "integers", len(datum).bit_length()
    return datum


@lru_cache(MOST)
def _asks_session(plan: Relation) -> bool:
    """Whether a plan has values that are no arguments."""
    return any(
        isinstance(part, Environment)
        for node in walk_relations(plan)
        for scalar in scalars_of(node)
        for part in walk_scalars(scalar)
    )
