"""Blocks: lowered relations with the recursions (WITH RECURSIVE) whose results they read."""

from collections.abc import Iterator
from dataclasses import dataclass

from foreshore.expr.ir import Relation, sources_of
from foreshore.ids import GlobalId


@dataclass(frozen=True, slots=True)
class Block:
    """A lowered relation with the recursions whose results it reads; these are computed first.

    With `rows_wanted`, any that many of its rows are a valid answer (LIMIT without ORDER BY).
    """

    relation: Relation
    recursions: "tuple[Recursion, ...]" = ()
    rows_wanted: int | None = None

    def relations(self) -> Iterator[Relation]:
        """Yield all relations of the block, those of its recursions included."""
        yield self.relation
        for each in self.recursions:
            yield from each.base.relations()
            yield from each.step.relations()

    def sources(self) -> frozenset[GlobalId]:
        """Return the collections that the block reads, without the results of its recursions."""
        return frozenset().union(*map(sources_of, self.relations())) - frozenset(self._results())

    def _results(self) -> Iterator[GlobalId]:
        for each in self.recursions:
            yield from (each.working, each.result)
            yield from each.base._results()
            yield from each.step._results()


@dataclass(frozen=True, slots=True)
class Recursion:
    """WITH RECURSIVE: the rows of `base`, and of `step` until it returns no more.

    `step` reads the rows found by the previous step as `working`; the complete result is read as
    `result`. With `distinct` (UNION without ALL), rows found before are dropped.
    """

    working: GlobalId
    result: GlobalId
    base: Block
    step: Block
    distinct: bool
