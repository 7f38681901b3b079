"""The tools that read: `query`, `subscribe` and, for developers, `explain`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any
from typing import Literal as OneOf

import msgspec
import pyarrow as pa
from msgspec import Meta

from foreshore.adapter.client import HistoryGone, Rows
from foreshore.errors import DatabaseError
from foreshore.output_style import OutputStyle
from foreshore.server.http.live_query import HEAD, Token, by_time, subscription, token_of
from foreshore.server.http.mcp.work import MOST_BYTES, MOST_ROWS, Gathered, Work, columns_of
from foreshore.server.http.params import Params, check_values
from foreshore.server.http.requests import ExtendedQuery
from foreshore.server.http.values import Piece, RowsAsJson
from foreshore.types import RelationDesc

GATHER_S = 0.2  # after the first changes, for others that are there already
MOST_CHANGES = 10_000  # in one answer

Seconds = Annotated[int, Meta(ge=1, le=60)]


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `query`."""

    query: Annotated[str, Meta(description="one query in PostgreSQL's dialect")]
    params: Params = ()
    max_rows: Annotated[int, Meta(ge=1, le=1000, description="how many rows to return")] = 100
    timeout_seconds: Annotated[Seconds, Meta(description="when to give up")] = 30


class Explain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `explain`."""

    query: Annotated[str, Meta(description="the query")]
    what: Annotated[
        OneOf["plan", "analyze", "freshness"],
        Meta(description="its plan; its plan with times, after running it; what delays its rows"),
    ] = "plan"
    timeout_seconds: Annotated[Seconds, Meta(description="when to give up")] = 30


class Subscribe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `subscribe`."""

    query: Annotated[str, Meta(description="the query whose result is followed")]
    params: Params = ()
    cursor: Annotated[
        str | None,
        Meta(description="from the last answer: return what has changed since then"),
    ] = None
    snapshot: Annotated[
        bool, Meta(description="without a cursor: begin with all rows, else with later changes")
    ] = True
    max_rows: Annotated[
        int, Meta(ge=1, le=1000, description="return when there are so many changes")
    ] = 100
    timeout_seconds: Annotated[
        Seconds, Meta(description="return after so long, also without changes")
    ] = 10


async def query(work: Work, args: Query) -> Mapping[str, Any]:
    """Return the first rows of a query."""
    return await work.table(ExtendedQuery(args.query, args.params), args.max_rows)


_EXPLAINED = {"plan": "EXPLAIN", "analyze": "EXPLAIN ANALYZE", "freshness": "EXPLAIN FRESHNESS FOR"}


async def explain(work: Work, args: Explain) -> Mapping[str, Any]:
    """Return the plan of a query, or what delays it."""
    text = f"{_EXPLAINED[args.what]} {args.query}"
    return await work.table(ExtendedQuery(text), MOST_ROWS)


async def subscribe(work: Work, args: Subscribe) -> Mapping[str, Any]:
    """Return changes of a query's result, and a cursor from which a next call goes on.

    The changes up to the cursor are all there. `reset` means that the cursor that was given is of
    no use any more, so that the changes begin anew, as without one.
    """
    check_values((args.query, *args.params))
    text = args.query.strip().rstrip(";")
    await work.session.extended.parse("", text, ())
    work.check(work.session.extended.reading(""))
    token = token_of(args.cursor) if args.cursor else None
    following = _Following(work, ExtendedQuery(text, args.params), args.snapshot)
    rows, is_reset = await following.begin(token)
    begins = token is None or is_reset
    changes = _Changes(rows.desc, work.session.output_style, args.max_rows)
    changes.done = None if token is None or is_reset else token.time
    deadline = asyncio.get_running_loop().time() + args.timeout_seconds
    await changes.gather(rows.batches, deadline, is_snapshot=begins and args.snapshot)
    return {
        "columns": columns_of(changes.columns),
        "changes": changes.gathered.json(),
        "change_count": changes.gathered.rows,
        "cursor": None if changes.done is None else f"{changes.done}-{following.meaning}",
        "reset": is_reset,
    }


@dataclass
class _Following:
    """A subscription of one call."""

    work: Work
    query: ExtendedQuery
    snapshot: bool
    meaning: str = ""

    async def begin(self, token: Token | None) -> tuple[Rows, bool]:
        """Return the changes after a token, and whether they begin anew in place of that."""
        session = self.work.session
        try:
            rows = await self._begin(token)
        except HistoryGone as error:
            if token is None:
                raise
            await session.fail(error)
            return await self._begin(None), True
        if token is None or token.meaning in (None, self.meaning):
            return rows, False
        await session.extended.close_portal("")
        await session.extended.sync()
        return await self._begin(None), True

    async def _begin(self, token: Token | None) -> Rows:
        after = None if token is None else token.time
        session = self.work.session
        rows = await subscription(session, self.query, after, snapshot=self.snapshot)
        self.meaning = session.extended.meaning("")
        return rows


class _Changes:
    """Gathers the changes of whole times."""

    def __init__(
        self, desc: RelationDesc, style: Callable[..., OutputStyle], most_rows: int
    ) -> None:
        self.columns = RelationDesc(desc.names[HEAD + 1 :], desc.columns[HEAD + 1 :])
        self.gathered = Gathered(MOST_CHANGES)
        self.done: int | None = None  # the time up to which all changes are gathered
        shown = RelationDesc(desc.names[HEAD:], desc.columns[HEAD:])
        self._encoder = RowsAsJson(shown, style, is_change=True)
        self._most_rows = most_rows
        self._pending: list[Piece] = []  # of a time of which more may come

    async def gather(
        self, batches: AsyncIterator[pa.RecordBatch], deadline: float, *, is_snapshot: bool
    ) -> None:
        """Take changes until the deadline, or until there are some; a snapshot only as a whole."""
        is_first = True
        with suppress(TimeoutError):  # what is pending is left to the next call
            async with asyncio.timeout_at(deadline) as limit:
                async for batch in batches:
                    for time, is_progress, part in by_time(batch):
                        if is_first:  # the time of AS OF, before its rows
                            is_first = False
                            if not is_snapshot and self.done is None:
                                self.done = time
                        elif not is_progress:
                            await self._add(part)
                            if self._is_full():
                                return
                        elif self._complete(time - 1, limit) or is_snapshot:
                            return

    async def _add(self, part: pa.RecordBatch) -> None:
        async for piece in self._encoder.parts(part):
            self._pending.append(piece)

    def _is_full(self) -> bool:
        """Return whether the changes of the present time are left to the next call.

        Raises DatabaseError if they are too many for any.
        """
        rows = sum(each.rows for each in self._pending)
        size = sum(each.texts.nbytes for each in self._pending)
        if rows + self.gathered.rows <= MOST_CHANGES and size + self.gathered.size <= MOST_BYTES:
            return False
        if not self.gathered.rows:
            raise DatabaseError(
                f"at one time there are more than {MOST_CHANGES} changes or {MOST_BYTES} bytes",
                sqlstate="54000",
                hint='Select less, or begin with "snapshot": false.',
            )
        return True

    def _complete(self, time: int, limit: asyncio.Timeout) -> bool:
        """Note that all changes up to a time are there; return whether they are enough."""
        pending, self._pending = self._pending, []
        is_first = bool(pending) and not self.gathered.rows
        for piece in pending:
            self.gathered.add(piece)
        self.done = max(time, self.done or 0)
        if is_first:
            soon, end = asyncio.get_running_loop().time() + GATHER_S, limit.when()
            limit.reschedule(soon if end is None else min(soon, end))
        return self.gathered.rows >= self._most_rows
