"""A process has one client of each store and of each consensus service, for those who use it."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from foreshore.storage.blob import open_blob
from foreshore.storage.consensus import Committed, Consensus
from foreshore.storage.consensus_services import open_consensus
from foreshore.storage.postgres_consensus import CONNECTIONS

USERS = 3


def test_blob_store_of_one_uri_has_one_client(tmp_path: Path) -> None:
    uri = "s3://bucket/shared?region=eu-west-1"
    assert len({id(open_blob(uri, tmp_path)) for _ in range(USERS)}) == 1
    assert open_blob("s3://bucket/another?region=eu-west-1", tmp_path) is not open_blob(
        uri, tmp_path
    )


@pytest.mark.parametrize("schemas", [("shared",) * USERS, ("one", "two", "three")])
def test_consensus_of_one_uri_has_one_pool_of_connections(
    postgres_url: str, tmp_path: Path, schemas: tuple[str, ...]
) -> None:
    async def main() -> None:
        observer = await asyncpg.connect(postgres_url)

        async def connections() -> int:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'foreshore'"
            return int(await observer.fetchval(sql))

        before = await connections()
        uris = [f"{postgres_url}?schema=clients%20{schema}" for schema in schemas]
        clients: list[Consensus] = [open_consensus(uri, tmp_path) for uri in uris]
        for place, client in enumerate(clients):
            key = f"{schemas[0]} {place}"
            assert isinstance(await client.compare_and_set(key, None, b"x"), Committed)
        await asyncio.gather(*(each.head("k") for each in clients for _ in range(4 * CONNECTIONS)))
        assert 1 <= await connections() - before <= CONNECTIONS
        for client in clients[:-1]:  # the others go on when one has closed
            await client.close()
            assert await clients[-1].head(f"{schemas[0]} {USERS - 1}") is not None
        await clients[0].head("k")  # one that has closed opens again
        await clients[0].close()
        await clients[-1].close()
        while await connections() > before:
            await observer.execute("SELECT 1")
        await observer.close()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_each_event_loop_has_its_own_connections(postgres_url: str, tmp_path: Path) -> None:
    consensus = open_consensus(f"{postgres_url}?schema=loops", tmp_path)

    async def use() -> None:
        other = open_consensus(f"{postgres_url}?schema=loops", tmp_path)
        await asyncio.gather(consensus.head("k"), other.head("k"))
        await asyncio.gather(consensus.close(), other.close())

    asyncio.run(use())
    asyncio.run(use())
