"""A source behind an OpenSSH server that refuses or is away: what its user is told, and how it recovers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("asyncssh")

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import options_of
from tests.adapter.sources.replicated import SOURCE, Upstream, equal
from tests.adapter.sources.replicated import upstream as upstream
from tests.openssh import OpenSsh, running_openssh

STATUS = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"


@pytest.fixture
def bastion() -> Iterator[OpenSsh]:
    with running_openssh() as found:
        yield found


async def until_told(env: TestEnvironment, *parts: str) -> None:
    """Wait until the state of the source has these texts."""
    async with asyncio.timeout(60):
        while True:
            found = await env.query("a", STATUS)
            if all(each in found for each in parts):
                return
            await asyncio.sleep(0.05)


@pytest.mark.full
async def test_each_failure_is_told_and_mended(
    own_env: TestEnvironment, upstream: Upstream, publisher_url: str, bastion: OpenSsh
) -> None:
    env = own_env
    env.environment.unlock_secrets(bytes(32))
    where = f"127.0.0.1:{bastion.port}"
    await env.ran(
        "a",
        f"CREATE CONNECTION t TO SSH TUNNEL (HOST '127.0.0.1', PORT {bastion.port},"
        f" USER '{bastion.user}')",
        f"CREATE CONNECTION pg TO POSTGRES ({options_of(publisher_url)}, SSH TUNNEL t)",
    )
    for validate in ("VALIDATE CONNECTION t", "VALIDATE CONNECTION pg"):
        said = await env.query("a", validate)
        assert f"the SSH server at {where} refuses the keys of user {bastion.user}" in said, said
        assert "HINT: Add the public keys in mz_ssh_tunnel_connections" in said, said
    keys = "SELECT public_key_1 FROM mz_ssh_tunnel_connections"
    key = (await env.query("a", keys)).splitlines()[0]
    bastion.let_in([key])
    await env.ran("a", "VALIDATE CONNECTION t", "VALIDATE CONNECTION pg", SOURCE)
    await equal(env, upstream)
    await env.ran("a", "SET real_time_recency = on", "SET real_time_recency_timeout = '60s'")

    async def mended(id: int) -> None:
        """Read as soon as the source is back, which a read that waits makes try at once."""
        upstream.execute("INSERT INTO up.b VALUES (%s, 1)", (id,))
        assert (await env.ran("a", "SELECT max(id) FROM b")).startswith(f"{id}\n")

    bastion.stop()
    away = f"could not connect to the SSH server at {where}: Connection refused"
    await until_told(env, "stalled", away, "that the server runs")
    assert away in await env.query("a", "VALIDATE CONNECTION pg")
    bastion.start()
    await mended(100)

    bastion.stop()
    bastion.let_in([])
    bastion.start()
    await until_told(env, "stalled", "refuses the keys", "mz_ssh_tunnel_connections")
    bastion.let_in([key])
    await mended(101)

    bastion.stop()
    bastion.make_host_key()
    bastion.start()
    await until_told(env, "stalled", "another host key than before", "SET (HOST KEY")
    assert bastion.host_key in await env.query("a", "VALIDATE CONNECTION t")
    await env.ran("a", f"ALTER CONNECTION t SET (HOST KEY '{bastion.host_key}')")
    await mended(102)
