"""Exchanges: updates go to the workers that own their keys, or to all (`flow/peers.py`)."""

from collections.abc import Sequence

from foreshore.compute.flow.batch import Batch, Ints
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.operator import Stateless, Window
from foreshore.compute.flow.peers import Peers, strings_of
from foreshore.compute.flow.program import Context, Program
from foreshore.expr.ir import Scalar


class Exchange(Stateless):
    """An input, each update at the owner of the key that a program makes of it.

    The program drops no rows, so that keys and updates correspond. `by` are the scalars of the key.
    """

    def __init__(
        self,
        input: int,
        layout: Layout,
        by: Sequence[Scalar],
        key: Program,
        peers: Peers,
        context: Context,
    ) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self.by = tuple(by)
        self._key = key
        self._peers = peers
        self._context = context
        self._strings: Ints = strings_of(layout)

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the updates that this worker owns."""
        (updates,) = inputs
        keys = self._key.run(updates, self._context)
        assert len(keys) == len(updates), (len(keys), len(updates))
        return self._peers.route(updates, self._strings, keys.words, self._key.strings)


class Broadcast(Stateless):
    """An input, the updates of all workers at each of them."""

    def __init__(self, input: int, layout: Layout, peers: Peers) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self._peers = peers
        self._strings: Ints = strings_of(layout)

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the updates of all workers; collective."""
        return self._peers.broadcast(inputs[0], self._strings)
