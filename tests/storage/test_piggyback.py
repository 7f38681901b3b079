"""Uppers are logged with the records that must not become durable before them."""

import asyncio

import pyarrow as pa

from foreshore.storage.piggyback import PiggybackedEvents
from foreshore.storage.record import Advanced, Downgraded
from foreshore.storage.shard import Shard
from foreshore.storage.wal import Entry
from foreshore.update import update_schema
from tests.storage.harness import U1, U2

SCHEMA = update_schema(pa.schema([("a", pa.int64())]))


def piggybacked() -> tuple[PiggybackedEvents, Shard]:
    shard = Shard(U1, SCHEMA)
    return PiggybackedEvents({U1: shard}, lambda: None, lambda: None), shard


def events(entries: list[Entry]) -> list[object]:
    return [entry.content for entry in entries]


def test_downgrade_is_logged_after_uppers() -> None:
    async def main() -> None:
        waiting, shard = piggybacked()
        for upper in (10, 20, 30):  # as often as there is anything to let go
            shard.advance(upper)
            waiting.downgrade(Shard(U2, SCHEMA), "token", upper - 1)
            assert events(waiting.entries()) == [
                Advanced(((U1, upper),)),
                Downgraded(((U2, "token", upper - 1),)),
            ]
            shard.advance(upper + 5)
            assert waiting.due > asyncio.get_running_loop().time()  # idle uppers wait
        waiting.close()

    asyncio.run(main())


def test_events_of_refused_record_go_with_the_next() -> None:
    async def main() -> None:
        waiting, shard = piggybacked()
        shard.advance(10)
        assert events(waiting.entries()) == [Advanced(((U1, 10),))]
        shard.advance(20)
        waiting.log_uppers_soon()
        (refused,) = waiting.entries()
        assert refused.refuse is not None
        refused.refuse()
        assert events(waiting.entries()) == [Advanced(((U1, 20),))]

    asyncio.run(main())
