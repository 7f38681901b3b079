"""Answers to queries of the catalog, for all sessions: what many ask of one state is computed once.

Drivers look types up on each new connection, tools list tables at each key: the same queries with
the same arguments, while the catalog hardly changes. A block into which arguments and environment
have been put has one answer over the same rows; so the answer is kept under the block and what the
rows of its relations were made from (`Origin`), for as long as the catalog's state is the same
object. Who asks for what is being computed waits for it, so that a pool's connections that come all
at once cost one evaluation.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pyarrow as pa

from foreshore.catalog.state import State
from foreshore.expr.block import Block
from foreshore.ids import GlobalId

MOST_ANSWERS = 256
LARGEST_ANSWER = 256 * 1024  # bytes; so all of them are no more than 64 MB


@dataclass(frozen=True, slots=True)
class Origin:
    """What the rows of a builtin relation are made from, beside the catalog's state."""

    relation: GlobalId
    database: str
    search_path: tuple[str, ...]  # empty: whatever it is


@dataclass(frozen=True, slots=True)
class Question:
    """A block, filled, over relations of the catalog alone."""

    block: Block
    origins: frozenset[Origin]


class CatalogAnswers:
    """The answers last used, to questions about one state of the catalog."""

    def __init__(self) -> None:
        self.tables: dict[Origin, tuple[State, pa.Table]] = {}  # the rows of builtin relations
        self._begin(None)

    def _begin(self, state: State | None) -> None:
        self._state = state
        self._answers: OrderedDict[Question, pa.Table] = OrderedDict()
        self._computing: dict[Question, asyncio.Future[pa.Table]] = {}

    def forget_schema(self, name: str) -> None:
        """Forget the rows of relations for search paths with a temporary schema that has ended."""
        for origin in [*self.tables]:
            if name in origin.search_path:
                del self.tables[origin]

    async def answer(
        self, state: State, question: Question, evaluate: Callable[[], Awaitable[pa.Table]]
    ) -> pa.Table:
        """Return the rows that answer `question` in `state`, the present one.

        If they are not known they are what `evaluate` gives, unless somebody else is at it. Raises
        what that raises; those who have waited for it meanwhile try it, one after the other.
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
            own.cancel()  # unless it is done
            del computing[question]
        if self._state is state and rows.nbytes <= LARGEST_ANSWER:
            self._answers[question] = rows
            if len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        return rows
