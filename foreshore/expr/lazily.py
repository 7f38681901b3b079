"""In what order the parts of scalars are evaluated for a row, as Case and coalesce skip parts.

    CASE WHEN a THEN f(x) ELSE g(x) END      0  unless a: to 3
                                             1  reach f(x)
                                             2  to 4
                                             3  reach g(x)

Steps lead forward only. So one pass over them finds what a row reaches, and also, with a mask of
the rows at each step, what many rows reach.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from foreshore.expr.ir import FALSE, Call, Case, Scalar
from foreshore.expr.split import is_null
from foreshore.expr.traversal import operands_of


class Reach(NamedTuple):
    """A row that comes here evaluates the part."""

    part: Scalar


class Unless(NamedTuple):
    """A row goes on at the step `to`, a later one, unless the test is TRUE."""

    test: Scalar
    to: int


Steps = Sequence[Reach | Unless]


def evaluation_steps(scalars: Iterable[Scalar], wanted: Callable[[Scalar], bool]) -> Steps:
    """Return how a row comes to the `wanted` parts of `scalars`, nested ones first.

    Nothing is in the steps that leads to no such part.
    """
    steps = _Builder(wanted)
    for scalar in scalars:
        steps.add(scalar)
    return steps.done


def always_reached(steps: Steps) -> set[Scalar]:
    """Return the parts that each row reaches, whatever the tests give."""
    found: set[Scalar] = set()
    together = 0  # the first step that all rows come to again
    for i, step in enumerate(steps):
        match step:
            case Unless(to=to):
                together = max(together, to)
            case Reach(part=part) if i >= together:
                found.add(part)
    return found


class _Builder:
    def __init__(self, wanted: Callable[[Scalar], bool]) -> None:
        self.done: list[Reach | Unless] = []
        self._wanted = wanted

    def add(self, scalar: Scalar) -> bool:
        """Add the steps of a scalar; return whether a wanted part is in it."""
        match scalar:
            case Case():
                found = self._add_case(scalar)
            case Call(function="coalesce", args=args):
                found = self._add_coalesce(args)
            case _:
                found = False
                for operand in operands_of(scalar):
                    found |= self.add(operand)
        if self._wanted(scalar):
            self.done.append(Reach(scalar))
            return True
        return found

    def _add_case(self, case: Case) -> bool:
        start, found = len(self.done), False
        ends: list[int] = []
        for test, value in case.branches:
            found |= self.add(test)
            tested = self._leave_place()
            found |= self.add(value)
            ends.append(self._leave_place())
            self.done[tested] = Unless(test, len(self.done))
        found |= self.add(case.otherwise)
        return self._end(start, dict.fromkeys(ends, FALSE), found)

    def _add_coalesce(self, args: Sequence[Scalar]) -> bool:
        start, found = len(self.done), False
        ends: dict[int, Scalar] = {}
        for arg in args:
            found |= self.add(arg)
            ends[self._leave_place()] = is_null(arg)
        return self._end(start, ends, found)

    def _leave_place(self) -> int:
        self.done.append(Unless(FALSE, 0))
        return len(self.done) - 1

    def _end(self, start: int, ends: dict[int, Scalar], found: bool) -> bool:
        """Lead from `ends` to here unless their tests are TRUE; or drop what leads nowhere."""
        if not found:
            del self.done[start:]
            return False
        for place, test in ends.items():
            self.done[place] = Unless(test, len(self.done))
        return True
