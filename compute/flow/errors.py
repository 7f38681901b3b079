"""Which errors of a plan count, and how often: where they are noted, and the errors as operators.

An operator notes the errors of failing rows at a *port* while it computes the rows. The errors of a
plan are those of its nodes, as `foreshore.expr.split` defines them: a part of the plan that occurs
twice counts twice, a failing row counts with its multiplicity, positively.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, concat
from foreshore.compute.flow.kernels import groups
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.operators.grouping import grouped, points_of
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.peers import Peers
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.sums import SumTable
from foreshore.expr import ir
from foreshore.expr.traversal import inputs_of
from foreshore.types import TEXT, ColumnType

ERROR_LAYOUT = layout_of((ColumnType(TEXT, False),))
_TEXT = np.zeros(1, np.int64)  # the place of an error's text in its words


def may_be_negative(relation: ir.Relation, bound: dict[int, bool]) -> bool:
    """Whether multiplicities may be negative, judging by the plan; `bound` is of its Lets."""
    match relation:
        case ir.Negate():
            return True
        case ir.Threshold() | ir.Reduce() | ir.TopK() | ir.Window() | ir.Get():
            return False
        case ir.Constant(rows=rows):
            return any(count < 0 for _, count in rows)
        case ir.LocalGet(number=number):
            return bound.get(number, False)
        case ir.Let(number=number, value=value, body=body):
            bound[number] = may_be_negative(value, bound)
            return may_be_negative(body, bound)
        case _:
            return any(may_be_negative(input, bound) for input in inputs_of(relation))


class Port:
    """The errors noted at one place; of rows that may be negative their absolute multiplicity."""

    def __init__(self, *, signed: bool) -> None:
        self._counts = SumTable(1, np.zeros(0, np.int64)) if signed else None

    def step(self, window: Window, found: Sequence[Batch], context: Context) -> Batch:
        """Return the changes of the errors, given those noted in a step."""
        updates = concat(found, 1)
        if self._counts is None:
            return updates
        order, hashes = grouped(updates, 1, context.seed)
        points = points_of(order, hashes, updates, 1, window)
        counts = np.abs(self._counts.at(points, order, hashes, updates)[:, 0])
        words = updates.words[points.rows]
        return Batch(*groups.changes(words, counts, points.times, points.first))

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of the counts."""
        if self._counts is not None:
            yield self._counts.size("errors")

    def commit(self) -> None:
        """Keep what was staged."""
        if self._counts is not None:
            self._counts.commit()

    def restore(self) -> None:
        """Forget what was staged."""
        if self._counts is not None:
            self._counts.restore()

    def save(self, to: Writer) -> None:
        """Write the counts."""
        if self._counts is not None:
            self._counts.save(to.part("counts"))

    def load(self, saved: Reader) -> None:
        """Take counts over."""
        if self._counts is not None:
            self._counts.load(saved.part("counts"))


class ErrorOutput:
    """The errors of a plan: each port with how often its errors count, and constant ones."""

    def __init__(
        self, ports: Sequence[Port], counts: Counter[int], constants: Sequence[str]
    ) -> None:
        self._ports = tuple(ports)
        self._counts = counts
        self._constants = tuple(constants)
        self._begun = not constants

    @property
    def can_fail(self) -> bool:
        """Whether there can be errors."""
        return bool(self._counts or self._constants)

    def step(self, window: Window, context: Context) -> Batch:
        """Return the changes of the errors in a window."""
        failures = context.failures()
        if context.peers is not None:
            failures = self._at_owners(failures, context.peers)
        parts = []
        for number, count in self._counts.items():
            found = failures.get(number)
            if found is not None:
                changed = self._ports[number].step(window, found, context)
                parts.append(Batch(changed.words, changed.times, changed.diffs * count))
        if not self._begun:
            ids = [[context.interner.number(text.encode())] for text in self._constants]
            times = np.full(len(ids), window.lower, np.int64)
            parts.append(Batch(np.array(ids, np.int64), times, np.ones(len(ids), np.int64)))
        return concat(parts, 1)

    def _at_owners(self, failures: dict[int, list[Batch]], peers: Peers) -> dict[int, list[Batch]]:
        """Return the errors that were noted by all workers, with the owners of their texts."""
        noted = {number: concat(failures.get(number, ()), 1) for number in self._counts}
        totals = peers.totals([len(each) for each in noted.values()]) if noted else []
        found = {}
        for (number, errors), total in zip(noted.items(), totals, strict=True):
            if total:
                mine = peers.route(errors, _TEXT, errors.words, _TEXT)
                if len(mine):
                    found[number] = [mine]
        return found

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of the counts of errors."""
        for port in self._ports:
            yield from port.sizes()

    def commit(self) -> None:
        """Keep what was staged."""
        self._begun = True
        for port in self._ports:
            port.commit()

    def restore(self) -> None:
        """Forget what was staged."""
        for port in self._ports:
            port.restore()

    def save(self, to: Writer) -> None:
        """Write the counts of all ports, and whether constant errors were put out."""
        to.numbers("begun", self._begun)
        for number, port in enumerate(self._ports):
            port.save(to.part(number))

    def load(self, saved: Reader) -> None:
        """Take that over."""
        (begun,) = saved.numbers("begun")
        self._begun = bool(begun)
        for number, port in enumerate(self._ports):
            port.load(saved.part(number))
