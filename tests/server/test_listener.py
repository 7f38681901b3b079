"""The end of a server while its clients are at work."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from foreshore.server.auth import Authenticator
from foreshore.server.lease import Lease
from foreshore.server.listener import Listener
from foreshore.server.ports import bind
from tests.adapter.harness import Gate, House, in_house
from tests.server.serving import standing


def test_whose_commit_is_on_its_way_at_the_end_is_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(house: House) -> None:
        await house.query("s", "CREATE TABLE t (a int)")
        gate = Gate(monkeypatch, house.storage, "append")
        lease = Lease(lambda: None, standing)
        await lease.renew()
        listener = Listener(house.environment, Authenticator.of("foreshore", None), lease)
        port = await listener.listen(await bind("127.0.0.1", 0, "--pg-listen"))
        url = f"postgres://foreshore@127.0.0.1:{port}/foreshore"
        writer, reader = await asyncpg.connect(url), await asyncpg.connect(url)
        write = asyncio.create_task(writer.execute("INSERT INTO t VALUES (1) RETURNING a"))
        sleep = asyncio.create_task(reader.execute("SELECT pg_sleep(1000)"))
        await gate.reached.wait()
        closing = asyncio.create_task(listener.close())
        async with asyncio.timeout(30):
            ended = "terminating connection due to administrator command"
            with pytest.raises(asyncpg.ConnectionDoesNotExistError, match=ended):
                await sleep
            gate.open()
            assert await write == "INSERT 0 1"
            await closing
        for each in (writer, reader):
            each.terminate()
        assert await house.query("s", "SELECT * FROM t") == "1\nSELECT 1"

    in_house(tmp_path, scenario)
