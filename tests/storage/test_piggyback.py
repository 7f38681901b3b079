"""Uppers are logged with the records that must not become durable before them."""

import asyncio

import pyarrow as pa

from foreshore.ids import GlobalId
from foreshore.storage.piggyback import IN_TURN, PiggybackedEvents
from foreshore.storage.record import Advanced, Downgraded
from foreshore.storage.shard import Shard
from foreshore.storage.wal import Entry
from foreshore.update import update_schema
from tests.storage.harness import U1, U2

SCHEMA = update_schema(pa.schema([("a", pa.int64())]))


def piggybacked() -> tuple[PiggybackedEvents, Shard]:
    shard = Shard(U1, SCHEMA)
    return PiggybackedEvents({U1: shard}, lambda: None, lambda _: None), shard


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


def test_uppers_of_many_shards_are_logged_in_turn() -> None:
    async def main() -> None:
        shards = {id: Shard(id, SCHEMA) for id in map(GlobalId, (f"u{n}" for n in range(1, 151)))}
        waiting = PiggybackedEvents(shards, lambda: None, lambda _: None)
        for shard in shards.values():
            shard.advance(10)
        shards[GlobalId("u149")].advance(11)
        waiting.advanced(shards[GlobalId("u149")])
        waiting.downgrade(shards[GlobalId("u150")], "token", 9)
        first = logged(waiting)
        assert len(first) == IN_TURN + 2
        assert first[GlobalId("u149")] == 11
        assert first[GlobalId("u150")] == 10  # before the downgrade
        del shards[GlobalId("u100")]
        later = [logged(waiting), logged(waiting), logged(waiting)]
        assert [len(each) for each in later] == [IN_TURN - 1, 150 - 2 * IN_TURN - 2, 0]
        assert {id for each in (first, *later) for id in each} == shards.keys()
        for shard in shards.values():
            shard.advance(20)
        waiting.log_uppers_soon()
        assert logged(waiting) == dict.fromkeys(shards, 20)
        for shard in shards.values():
            shard.advance(30)
        waiting.close()
        assert logged(waiting) == dict.fromkeys(shards, 30)

    def logged(waiting: PiggybackedEvents) -> dict[GlobalId, int]:
        found = [each for each in events(waiting.entries()) if isinstance(each, Advanced)]
        return {id: upper for each in found for id, upper in each.uppers}

    asyncio.run(main())
