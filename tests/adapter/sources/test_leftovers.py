"""The remains of a dropped source upstream are removed, whatever happens in between."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse

import pytest

from foreshore.storage.ingest.postgres import begin as beginning
from foreshore.storage.ingest.postgres import connector
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots, options_of
from tests.adapter.sources.replicated import SOURCE, Upstream, equal, rows_of, until
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream
from tests.harness import free_port

SLOTS = "SELECT count(*) FROM pg_replication_slots"
LEFT = "SELECT name, type, leftover LIKE 'replication slot \"%', error IS NULL FROM mz_internal.mz_leftovers"
NONE = "SELECT count(*) FROM mz_internal.mz_leftovers"
UNREACHABLE = f"ALTER CONNECTION pg SET (PORT {free_port()}) WITH (VALIDATE = false)"


@pytest.fixture
def reachable(publisher_url: str) -> Iterator[str]:
    """Return the statement after which the upstream can be reached again."""
    yield f"ALTER CONNECTION pg SET (PORT {urlparse(publisher_url).port})"
    drop_slots(publisher_url)


async def gone(env: TestEnvironment, upstream: Upstream) -> None:
    """Wait until the slot is dropped, and the catalog has forgotten it."""
    await until(env, NONE, "0")
    assert rows_of(upstream, SLOTS) == "0"


async def test_slot_of_unreachable_server_is_dropped_once_it_is_back(
    env: TestEnvironment, upstream: Upstream, reachable: str
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    await env.ran("a", UNREACHABLE, "DROP SOURCE s CASCADE")
    await until(env, LEFT, "s|source|t|f")
    await env.reopen()
    assert await env.query("a", LEFT) == "s|source|t|t\nSELECT 1"  # not tried since
    await env.environment.equip_sources()
    await until(env, LEFT, "s|source|t|f")
    assert rows_of(upstream, SLOTS) == "1"
    await env.ran("a", reachable)
    await gone(env, upstream)
    await env.reopen()
    assert await env.query("a", NONE) == "0\nSELECT 1"


async def test_slot_is_dropped_though_connection_and_secret_are(
    env: TestEnvironment, upstream: Upstream, publisher_url: str
) -> None:
    env.environment.unlock_secrets(b"k" * 32)
    options = f"{options_of(publisher_url)}, PASSWORD SECRET word"
    await env.ran("a", "CREATE SECRET word AS 'xyz'")
    await env.ran("a", f"CREATE CONNECTION other TO POSTGRES ({options})")
    await env.ran("a", SOURCE.replace("CONNECTION pg", "CONNECTION other"))
    await equal(env, upstream)
    assert rows_of(upstream, SLOTS) == "1"
    await env.ran("a", "BEGIN", "DROP CONNECTION other CASCADE", "DROP SECRET word", "COMMIT")
    await gone(env, upstream)


@pytest.mark.parametrize("end", ["ROLLBACK", "DROP SCHEMA"])
async def test_what_remains_keeps_its_slot_and_what_goes_with_others_does_not(
    env: TestEnvironment, upstream: Upstream, end: str
) -> None:
    if end == "ROLLBACK":
        await env.ran("a", SOURCE)
        await equal(env, upstream)
        await env.ran("a", "BEGIN", "DROP SOURCE s CASCADE", "ROLLBACK")
        assert await env.query("a", NONE) == "0\nSELECT 1"
        assert rows_of(upstream, SLOTS) == "1"
    else:
        await env.ran("a", "CREATE SCHEMA x", SOURCE.replace("SOURCE s", "SOURCE x.s"))
        await until(
            env,
            "SELECT count(*) FROM mz_internal.mz_source_statuses WHERE status = 'running' AND name = 's'",
            "1",
        )
        await env.ran("a", "DROP SCHEMA x CASCADE")
        await gone(env, upstream)


async def test_leftover_of_a_server_that_is_gone_for_good_is_given_up_by_its_owner(
    env: TestEnvironment, upstream: Upstream, reachable: str
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    await env.ran("a", UNREACHABLE, "DROP SOURCE s CASCADE", "CREATE ROLE r", "SET ROLE r")
    id = (await env.query("a", "SELECT id FROM mz_internal.mz_leftovers")).split("\n")[0]
    refused = await env.query("a", f"SELECT mz_forget_leftover('{id}')")
    assert "ERROR 42501" in refused
    await env.ran("a", "RESET ROLE")
    assert await env.query("a", "SELECT mz_forget_leftover('u999')") == "f\nSELECT 1"
    assert await env.query("a", f"SELECT mz_forget_leftover('{id}')") == "t\nSELECT 1"
    assert await env.query("a", NONE) == "0\nSELECT 1"
    await env.reopen()
    await env.environment.equip_sources()
    assert await env.query("a", NONE) == "0\nSELECT 1"
    assert rows_of(upstream, SLOTS) == "1"


async def test_ends_between_drop_and_removal_lose_nothing(
    env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    begun = asyncio.Event()

    async def hang(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr("foreshore.adapter.leftovers.answer_to", hang)
        await env.ran("a", "DROP SOURCE s CASCADE")
        await begun.wait()
        await env.reopen()
    assert rows_of(upstream, SLOTS) == "1"
    await env.environment.equip_sources()
    await gone(env, upstream)


async def test_source_that_is_dropped_while_it_begins_makes_no_slot_later(
    env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    stamp, begin = vars(beginning)["stamp_of"], vars(connector)["begin"]

    def late_stamp(*args: Any) -> int:
        reached.set()
        goes_on.wait(60)
        return int(stamp(*args))

    def observed(*args: Any) -> Any:
        try:
            return begin(*args)
        finally:
            ended.set()

    monkeypatch.setattr(beginning, "stamp_of", late_stamp)
    monkeypatch.setattr(connector, "begin", observed)
    await env.ran("a", SOURCE)
    assert await asyncio.to_thread(reached.wait, 60)
    await env.ran("a", "DROP SOURCE s CASCADE")
    await until(env, NONE, "0")
    goes_on.set()
    assert await asyncio.to_thread(ended.wait, 60)
    assert rows_of(upstream, SLOTS) == "0"
