"""The end of a server while its clients are at work."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import pytest

from foreshore.server.auth import Authenticator
from foreshore.server.listener import Listener
from foreshore.server.ports import bind
from foreshore.storage.controller import Appended, ShardWrite, UpperMismatch
from tests.adapter.harness import House


def test_whose_commit_is_on_its_way_at_the_end_is_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.open()
        await house.query("s", "CREATE TABLE t (a int)")
        append, gate, asked = house.storage.append, asyncio.Event(), asyncio.Event()

        async def held(writes: Sequence[ShardWrite]) -> Appended | UpperMismatch:
            asked.set()
            await gate.wait()
            return await append(writes)

        monkeypatch.setattr(house.storage, "append", held)
        listener = Listener(house.environment, Authenticator.of("foreshore", None))
        port = await listener.listen(await bind("127.0.0.1", 0, "--pg-listen"))
        url = f"postgres://foreshore@127.0.0.1:{port}/foreshore"
        writer, reader = await asyncpg.connect(url), await asyncpg.connect(url)
        write = asyncio.create_task(writer.execute("INSERT INTO t VALUES (1) RETURNING a"))
        sleep = asyncio.create_task(reader.execute("SELECT pg_sleep(1000)"))
        await asked.wait()
        closing = asyncio.create_task(listener.close())
        async with asyncio.timeout(30):
            ended = "terminating connection due to administrator command"
            with pytest.raises(asyncpg.ConnectionDoesNotExistError, match=ended):
                await sleep
            gate.set()
            assert await write == "INSERT 0 1"
            await closing
        for each in (writer, reader):
            each.terminate()
        assert await house.query("s", "SELECT * FROM t") == "1\nSELECT 1"
        await house.close()

    asyncio.run(scenario())
