"""Blocks: lowered relations with the recursions whose results they read.

A query is a block: its recursions are computed first, one after the other. A view is a single
relation, in which a recursion is a `LetRec` (`recursion.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import ColumnType


@dataclass(frozen=True, slots=True)
class Block:
    """A lowered relation with the recursions whose results it reads; these are computed first.

    With `rows_wanted`, any that many of its rows are a valid answer (LIMIT without ORDER BY).
    """

    relation: Relation
    recursions: "tuple[AnyRecursion, ...]" = ()
    rows_wanted: int | None = None

    def relations(self) -> Iterator[Relation]:
        """Yield all relations of the block, those of its recursions included."""
        yield self.relation
        for each in self.recursions:
            for block in each.blocks:
                yield from block.relations()

    def sources(self) -> frozenset[GlobalId]:
        """Return the collections that the block reads, without the results of its recursions."""
        return frozenset().union(*map(sources_of, self.relations())) - frozenset(self._results())

    def with_relations(self, change: Callable[[Relation], Relation]) -> "Block":
        """Return the block with `change` applied to each of its relations."""
        recursions = tuple(
            each.with_blocks(tuple(block.with_relations(change) for block in each.blocks))
            for each in self.recursions
        )
        return Block(change(self.relation), recursions, self.rows_wanted)

    def without_unread(self) -> "Block":
        """Return the block without the recursions that nobody reads, so that they do not fail."""
        kept: list[AnyRecursion] = []
        read = set(sources_of(self.relation))
        for each in reversed(self.recursions):
            if not read.isdisjoint(each.collections):
                inner = tuple(block.without_unread() for block in each.blocks)
                kept.insert(0, each.with_blocks(inner))
                read.update(*(sources_of(r) for block in inner for r in block.relations()))
        return replace(self, recursions=tuple(kept))

    def _results(self) -> Iterator[GlobalId]:
        for each in self.recursions:
            yield from each.collections
            for block in each.blocks:
                yield from block._results()


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

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the base and the step."""
        return self.base, self.step

    @property
    def collections(self) -> tuple[GlobalId, ...]:
        """Return the ids of what is only known here."""
        return self.working, self.result

    def with_blocks(self, blocks: tuple[Block, ...]) -> "Recursion":
        """Return the recursion with other blocks."""
        base, step = blocks
        return replace(self, base=base, step=step)


@dataclass(frozen=True, slots=True)
class MutualRecursion:
    """WITH MUTUALLY RECURSIVE: values that are computed from each other until none changes.

    See `LetRec`; the blocks read the values by the ids in `collections`.
    """

    collections: tuple[GlobalId, ...]
    columns: tuple[tuple[ColumnType, ...], ...]
    blocks: tuple[Block, ...]
    limit: int | None = None
    fails: bool = True

    def with_blocks(self, blocks: tuple[Block, ...]) -> "MutualRecursion":
        """Return the recursion with other blocks."""
        return replace(self, blocks=blocks)


AnyRecursion: TypeAlias = Recursion | MutualRecursion
