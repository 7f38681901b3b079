"""The look-ups by which the changes of each input of a join are joined with the others."""

from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.expr import ir
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import Scalar
from foreshore.expr.split import columns_used
from foreshore.types import ColumnType


@dataclass(frozen=True, slots=True)
class Key:
    """One component of a look-up's key, and whether NULL equals NULL."""

    scalar: Scalar
    null_safe: bool

    @property
    def column(self) -> ColumnType:
        """Return the type of the key's column."""
        return ColumnType(type_of(self.scalar), self.null_safe)


Keys = tuple[Key, ...]
Plan = Sequence[tuple[int, list[tuple[Key, Key]]]]  # inputs looked up, with pairs of equal keys


def owners(join: ir.Join) -> list[int]:
    """Return for each column of a join the number of its input."""
    widths = [len(columns_of(input)) for input in join.inputs]
    return [i for i, width in enumerate(widths) for _ in range(width)]


def input_of(scalar: Scalar, owner: Sequence[int]) -> int | None:
    """Return the input whose columns a scalar uses, None if it uses none."""
    used = {owner[i] for i in columns_used(scalar)}
    assert len(used) <= 1, scalar
    return next(iter(used), None)


def plans_of(join: ir.Join) -> list[Plan]:
    """Return for the changes of each input the look-ups in the others, in order.

    Next comes the input with the most keys. The first of a pair is of what is there already, the
    second of the input that is looked up.
    """
    owner = owners(join)
    plans: list[Plan] = []
    for start in range(len(join.inputs)):
        bound = [start]
        plan: list[tuple[int, list[tuple[Key, Key]]]] = []
        while len(bound) < len(join.inputs):
            free = [i for i in range(len(join.inputs)) if i not in bound]
            keys = {i: _keys(join, owner, bound, i) for i in free}
            chosen = max(free, key=lambda i: (len(keys[i]), -i))
            plan.append((chosen, keys[chosen]))
            bound.append(chosen)
        plans.append(plan)
    return plans


def _keys(
    join: ir.Join, owner: Sequence[int], bound: Sequence[int], input: int
) -> list[tuple[Key, Key]]:
    """Return the pairs of keys of the bound inputs and of `input`."""
    pairs = []
    for position, equivalence in enumerate(join.equivalences):
        safe = position in join.null_safe
        outer = [s for s in equivalence if input_of(s, owner) in bound]
        inner = [s for s in equivalence if input_of(s, owner) == input]
        if outer and inner:
            pairs.append((Key(outer[0], safe), Key(inner[0], safe)))
    return pairs
