"""Webhooks: requests that wait for their rows to be durable.

Requests that come while others are written wait, and are decoded, checked and written together: by
one thread for a webhook, in one write of group commit.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile

from foreshore import blocking
from foreshore.adapter.client import TooManyRequests
from foreshore.adapter.definitions.catalog_reader import DefinitionCatalog
from foreshore.adapter.services.collections import Stored
from foreshore.adapter.services.sources import Received
from foreshore.adapter.sources.webhook_check import (
    Condition,
    EmptySecret,
    check_secrets,
    condition_of,
)
from foreshore.adapter.sources.webhook_rows import Request, Rows, rows_of
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.item import Item, Secret
from foreshore.errors import DatabaseError, InternalError, UndefinedTable
from foreshore.ids import GlobalId
from foreshore.sources.spec import secrets_of
from foreshore.sources.webhook import WebhookSource

logger = logging.getLogger(__name__)

MOST_REFUSAL = 300  # characters of a refusal that are kept
MOST_WAITING = 1_000  # requests of all webhooks
MOST_BYTES = 64 << 20  # of these, with their headers
AT_ONCE = 256  # requests that are written together
BYTES_AT_ONCE = 8 << 20  # of these, unless one has more


@dataclass(slots=True)
class _Waiting:
    """The requests of one webhook, and what writes them."""

    requests: list[tuple[Request, asyncio.Future[None]]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    condition: tuple[WebhookSource, Condition | None] | None = None  # as it was planned


class Webhooks:
    """The webhooks of one environment; owned by the event loop."""

    def __init__(self, coordinator: Stored) -> None:
        self._coordinator = coordinator
        self._waiting: dict[GlobalId, _Waiting] = {}
        self._received: dict[GlobalId, Received] = {}
        self._requests = 0
        self._bytes = 0

    async def receive(
        self, name: tuple[str, str, str], headers: Mapping[str, bytes], body: bytes
    ) -> None:
        """Write the rows of a request to the webhook database.schema.name, durably.

        Raises UndefinedTable, TooManyRequests, InsufficientPrivilege if the webhook's condition is
        not met, and other DatabaseErrors if it cannot be decoded or written.
        """
        item = self._found(name)
        request = Request(headers, body)
        size = _size(request)
        if self._requests >= MOST_WAITING or self._bytes + size > MOST_BYTES:
            error = TooManyRequests()
            self._note(item.id, request, error)
            raise error
        waiting = self._waiting.setdefault(item.id, _Waiting())
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        waiting.requests.append((request, done))
        self._requests += 1
        self._bytes += size
        if waiting.task is None:
            waiting.task = loop.create_task(self._write_waiting(item.id, waiting))
        try:
            await done
        finally:
            self._requests -= 1
            self._bytes -= size

    def has_condition(self, name: tuple[str, str, str]) -> bool:
        """Return whether the webhook database.schema.name has one; raises UndefinedTable."""
        spec = _spec(self._found(name))
        return spec is not None and bool(spec.check)

    def received(self) -> Iterator[tuple[Item, Received]]:
        """Yield the webhooks with what they have received; nothing of those that were dropped."""
        state = self._coordinator.state
        for item in state.all(Item):
            if _spec(item) is not None:
                yield item, self._count(item.id)
        for id in [id for id in self._received if state.get(id) is None]:
            del self._received[id]

    def counted(self) -> Iterator[tuple[Item, Received]]:
        """Yield the webhooks that were asked for or asked about since the start of the server."""
        for id, received in list(self._received.items()):
            item = self._coordinator.state.get(id)
            if isinstance(item, Item):
                yield item, received

    def _count(self, id: GlobalId) -> Received:
        return self._received.setdefault(id, Received(self._coordinator.clock.now()))

    def _note(self, id: GlobalId, request: Request, error: Exception | None) -> None:
        """Count a request: its rows are durable, or it was refused for `error`."""
        counted, now = self._count(id), self._coordinator.clock.now()
        if error is None:
            counted.requests += 1
            counted.bytes += len(request.body)
            counted.last_at = now
        else:
            counted.refused += 1
            counted.refused_at = now
            shown = error if isinstance(error, DatabaseError) else InternalError("internal error")
            counted.refusal = f"{shown.sqlstate} {shown.message}"[:MOST_REFUSAL]

    def _note_empty(self, item: Item, secret: str) -> None:
        """Keep for the administrator that a secret has no value; log it once."""
        counted, found = self._count(item.id), self._coordinator.state.get(secret)
        name = found.name if isinstance(found, Secret) else secret
        error = f'secret "{name}" is empty: ALTER SECRET gives it a value'
        if counted.error != error:
            counted.error = error
            logger.warning('webhook "%s" takes no requests: %s', item.name, error)

    async def close(self) -> None:
        """End what has not been written."""
        tasks = [each.task for each in self._waiting.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _found(self, name: tuple[str, str, str]) -> Item:
        state = self._coordinator.state
        database = state.database(name[0])
        schema = None if database is None else state.schema(database.id, name[1])
        item = None if schema is None else state.item_in(schema.id, name[2])
        if item is None or _spec(item) is None:
            raise UndefinedTable(f'webhook "{".".join(name)}" does not exist')
        return item

    async def _write_waiting(self, id: GlobalId, waiting: _Waiting) -> None:
        """Write what waits, until nothing does."""
        taken: list[tuple[Request, asyncio.Future[None]]] = []
        try:
            while waiting.requests:
                count = _count_at_once([_size(request) for request, _ in waiting.requests])
                taken, waiting.requests = waiting.requests[:count], waiting.requests[count:]
                try:
                    errors = await self._write(id, waiting, [request for request, _ in taken])
                except Exception as error:
                    errors = dict.fromkeys(range(len(taken)), error)
                for number, (request, done) in enumerate(taken):
                    self._note(id, request, errors.get(number))
                    if done.done():
                        continue  # the client is gone
                    if number in errors:
                        done.set_exception(errors[number])
                    else:
                        done.set_result(None)
        finally:
            for _, done in (*taken, *waiting.requests):
                done.cancel()
            del self._waiting[id]

    async def _write(
        self, id: GlobalId, waiting: _Waiting, requests: list[Request]
    ) -> Mapping[int, Exception]:
        """Write requests together; return the errors of those that are refused."""
        coordinator = self._coordinator
        item = coordinator.state.get(id)
        spec = _spec(item)
        if spec is None or not isinstance(item, Item):
            raise UndefinedTable("the webhook was dropped")
        desc = coordinator.catalog.planned[id].desc
        state, planned = coordinator.state, coordinator.catalog.planned

        def work() -> tuple[Condition | None, Rows]:
            secrets = {each: coordinator.secrets.read(each) for each in secrets_of(spec)}
            check_secrets(secrets)
            known = waiting.condition
            condition = known[1] if known is not None and known[0] == spec else None
            if condition is None and spec.check:
                condition = condition_of(DefinitionCatalog(state, planned, item), spec)
            return condition, rows_of(requests, spec, desc, condition, secrets)

        try:
            condition, rows = await blocking.run(None, work)
        except EmptySecret as empty:
            self._note_empty(item, empty.secret)
            raise
        self._count(id).error = None
        waiting.condition = spec, condition
        if rows.table.num_rows:
            await coordinator.group.write(Write({id: [rows.table]}))
            self._count(id).rows += rows.table.num_rows
        return rows.errors


def _size(request: Request) -> int:
    """Return the bytes of a request."""
    headers = sum(len(name) + len(value) for name, value in request.headers.items())
    return headers + len(request.body)


def _count_at_once(sizes: Sequence[int]) -> int:
    """Return how many of the first requests of these sizes are written together: at least one."""
    fitting = takewhile(lambda total: total <= BYTES_AT_ONCE, accumulate(sizes[:AT_ONCE]))
    return max(1, sum(1 for _ in fitting))


def _spec(item: object) -> WebhookSource | None:
    """Return what a webhook takes; None if an object is none."""
    if isinstance(item, Item) and item.feed and isinstance(item.feed.spec, WebhookSource):
        return item.feed.spec
    return None
