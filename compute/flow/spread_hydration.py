"""Hydration of a dataflow of several workers: a bulk engine of the replica computes groups of sums.

The replica decides which reductions it begins (`groups_in_bulk`) and sends each worker some of the
groups, any of them. The workers route these to the owners of their keys, and fill the joins below,
whose output nobody needs then, with their inputs.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from foreshore.compute.engine import Input
from foreshore.compute.flow import hydration
from foreshore.compute.flow.batch import Batch, Words, empty
from foreshore.compute.flow.bulk import Begun, begun
from foreshore.compute.flow.convert import fill_words, flat
from foreshore.compute.flow.hydration import Beginning, Hydration, group_words
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.operators.exchange import Exchange
from foreshore.compute.flow.operators.join import Join
from foreshore.compute.flow.operators.operator import Linear, Operator, Source
from foreshore.compute.flow.operators.reduce import Reduce
from foreshore.compute.flow.peers import Peers, strings_of
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.read import count_updates
from foreshore.expr.columns import columns_of
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import ColumnType

Groups = Mapping[int, Sequence[pa.Table]]  # by the number of the reduction


def groups_in_bulk(
    operators: Sequence[Operator], inputs: Mapping[GlobalId, Input]
) -> dict[int, Begun]:
    """Return the plans of the groups of those reductions that a bulk engine begins faster."""
    found = {}
    for number, operator in enumerate(operators):
        if not isinstance(operator, Reduce) or operator.bulk is None:
            continue
        if _joins_below(operators, number) is None:
            continue
        rows = sum(count_updates(inputs[id]) for id in sources_of(operator.bulk.plan))
        # A plan that may fail is not looked at more closely than at the digits of its inputs.
        plan = begun(operator.bulk, inputs, lambda _: True)
        if rows >= hydration.BULK_ROWS and plan is not None:
            found[number] = plan
    return found


def _joins_below(operators: Sequence[Operator], number: int) -> set[int] | None:
    """Return the joins on whose output alone a reduction depends, None if there is other state."""
    joins = set()
    below = list(operators[number].inputs)
    while below:
        operator = operators[number := below.pop()]
        if isinstance(operator, Join):
            joins.add(number)
        elif isinstance(operator, Source | Linear | Exchange):
            below += operator.inputs
        else:
            return None
    return joins


class SpreadHydration(Hydration):
    """The first step of a worker, of which `groups` are given; all workers have the same numbers.

    Groups are tables of the key's columns, counts and sums, and a last column that is not read.
    """

    def __init__(
        self, beginning: Beginning, context: Context, peers: Peers, groups: Groups
    ) -> None:
        self._given_groups = groups
        self._filled: set[int] = set()
        self._peers = peers
        super().__init__(beginning, None, context)

    def _find_wanted(self, rows: int) -> set[int]:
        wanted = {rows}
        for number in reversed(range(len(self._operators))):
            if number in wanted and number in self._given_groups:
                self._filled |= _joins_below(self._operators, number) or set()
            elif number in wanted or number in self._filled:
                wanted.update(self._operators[number].inputs)
        return wanted

    def step(self, number: int, inputs: Sequence[Batch]) -> Batch:
        """Return the output of an operator, given that of others; nothing if nobody needs it."""
        operator = self._operators[number]
        if number in self._wanted and number in self._given_groups:
            assert isinstance(operator, Reduce)
            return operator.begin(self._own_groups(number, operator), self.window)
        if number in self._wanted:
            return operator.step(self.window, inputs)
        if number in self._filled:
            assert isinstance(operator, Join)
            operator.fill(inputs)
        return empty(operator.layout.words)

    def _own_groups(self, number: int, reduce: Reduce) -> Words:
        """Return the groups that this worker owns; collective."""
        assert reduce.bulk is not None
        types = [column.type for column in columns_of(reduce.bulk.plan)]
        parts = self._given_groups[number]
        words = group_words(parts, types, reduce.bulk.sums, reduce.key, self._interner)
        # Keys have owners by their words as an exchange makes them.
        width = len(reduce.key.places)
        key = layout_of(tuple(map(ColumnType, types[:width])))
        keys = np.zeros((len(words), key.words), np.int64)
        start = 0
        for part in parts:
            to, start = keys[start : start + part.num_rows], start + part.num_rows
            if len(to):
                columns = [flat(column) for column in part.columns[:width]]
                fill_words(to, columns, key, self._interner)
        none = np.zeros(len(words), np.int64)
        sent = Batch(words, none, none)
        return self._peers.route(sent, strings_of(reduce.key), keys, strings_of(key)).words
