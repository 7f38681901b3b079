"""Cached answers to queries of the catalog, shared by all sessions.

Drivers look types up on each new connection, and tools list tables at each key: the same queries
with the same arguments, while the catalog rarely changes. A block with its parameters bound has one
answer over the same rows. So answers are kept by the block and the origins of its relations' rows
(`Origin`), as long as the catalog's state is the same object. Concurrent callers wait for the first
one's evaluation, so that all connections of a pool cost one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from foreshore.catalog.builtin.object_names import KeptNames
from foreshore.catalog.builtin.parts import PARTED, Origin, Parts, RelationRead, RelationRows
from foreshore.catalog.state import State
from foreshore.expr.block import Block
from foreshore.in_turns import Steps, run_in_turns

T = TypeVar("T")

MOST_ANSWERS = 256
LARGEST_ANSWER = 256 * 1024  # bytes, so that all of them take at most 64 MB
MOST_OWN = 4  # states of transactions whose rows are kept


@dataclass(frozen=True, slots=True)
class Question:
    """A block, with its parameters bound, over relations of the catalog only."""

    block: Block
    origins: frozenset[Origin]


class CatalogAnswers:
    """The most recently used answers to questions about one state of the catalog."""

    def __init__(self) -> None:
        # The rows of builtin relations, of the committed states and of transactions' own ones.
        self._rows: dict[Origin, tuple[State, RelationRows]] = {}
        self._own: OrderedDict[int, tuple[State, dict[Origin, RelationRows]]] = OrderedDict()
        self._made: dict[Origin, Any] = {}  # what was made of such rows last
        self.names: KeptNames = {}  # of objects, as results show them
        self._parts = Parts()  # of those relations with rows for each item
        self._making: dict[tuple[Origin, int], asyncio.Future[None]] = {}  # by id() of a state
        self._begin(None)

    def _begin(self, state: State | None) -> None:
        self._state = state
        self._answers: OrderedDict[Question, pa.Table] = OrderedDict()
        self._computing: dict[Question, asyncio.Future[pa.Table]] = {}

    def forget_schema(self, name: str) -> None:
        """Forget the rows for search paths with a temporary schema that was dropped."""
        for origin in [*self._rows]:
            if name in origin.search_path:
                del self._rows[origin]
                self._made.pop(origin, None)
        self._parts.forget(lambda key: name in key.search_path)

    def known(self, state: State, origin: Origin) -> RelationRows | None:
        """Return the rows of a builtin relation in `state` if they have been made."""
        known = self._rows.get(origin)
        if known is not None and known[0] is state:
            return known[1]
        own = self._own.get(id(state))
        return None if own is None else own[1].get(origin)

    def made_of(
        self, origin: Origin, rows: RelationRows, make: Callable[[RelationRows, T | None], T]
    ) -> T:
        """Return what `make` makes of the rows of a relation, which is kept as long as they are.

        It is given what it made last of other rows of that relation.
        """
        if rows.made is None:
            rows.made = self._made[origin] = make(rows, self._made.get(origin))
        made: T = rows.made
        return made

    async def rows_in_turns(self, read: RelationRead) -> RelationRows:
        """Return what `rows` does. Others run in between, and wait for the same rows."""
        while (known := self.known(read.state, read.origin)) is None:
            making = self._making.get((read.origin, id(read.state)))
            if making is None:
                return await self._make_in_turns(read)
            await asyncio.wait([making])
        return known

    async def _make_in_turns(self, read: RelationRead) -> RelationRows:
        key = read.origin, id(read.state)  # which the coroutine holds
        made = self._making[key] = asyncio.get_running_loop().create_future()
        try:
            return await run_in_turns(self.rows(read))
        finally:
            del self._making[key]
            made.set_result(None)

    def rows(self, read: RelationRead) -> Steps[RelationRows]:
        """Return the rows of a builtin relation in a state that is the present one, or just was.

        Or it is that of a transaction.
        """
        known = self.known(read.state, read.origin)
        if known is None:
            if not read.is_own:
                self._parts.advance(read.state)
            if read.builtin.name in PARTED:
                known = yield from self._parts.rows(read)
            else:
                known = RelationRows(((yield from read.builtin.steps(read.snapshot())),))
            if read.is_own:
                self._keep_own(read, known)
            elif self._parts.shows(read.state):
                self._rows[read.origin] = read.state, known
        return known

    def _keep_own(self, read: RelationRead, rows: RelationRows) -> None:
        _, own = self._own.setdefault(id(read.state), (read.state, {}))
        own[read.origin] = rows
        self._own.move_to_end(id(read.state))
        if len(self._own) > MOST_OWN:
            self._own.popitem(last=False)

    async def answer(
        self, state: State, question: Question, evaluate: Callable[[], Awaitable[pa.Table]]
    ) -> pa.Table:
        """Return the rows that answer `question` in `state`, the present one.

        `evaluate` computes them if they are neither known nor being computed. If it raises, this
        raises the same error, and the callers that waited for it evaluate one after the other.
        """
        if state is not self._state:
            self._begin(state)
        known = self._answers.get(question)
        if known is not None:
            self._answers.move_to_end(question)
            return known
        while (others := self._computing.get(question)) is not None:
            await asyncio.wait([others])
            if not others.cancelled():
                return others.result()
        computing = self._computing
        own = computing[question] = asyncio.get_running_loop().create_future()
        try:
            rows = await evaluate()
            own.set_result(rows)
        finally:
            own.cancel()  # no effect if it is done
            del computing[question]
        if self._state is state and rows.nbytes <= LARGEST_ANSWER:
            self._answers[question] = rows
            if len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        return rows
