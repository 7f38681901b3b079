"""HTTP clients without credentials disturb nobody, and probes are answered beside them."""

import asyncio
import urllib.request
from pathlib import Path
from random import Random

import pytest

from tests.harness import Server
from tests.hostile.bystander import bystanders, undisturbed
from tests.hostile.kinds.registry import Target, every_kind

KINDS = {name: attack for name, attack in every_kind().items() if name.startswith("http:")}


def alive(server: Server) -> bool:
    """Return whether /livez answers, and SQL over HTTP with it."""
    url = f"http://127.0.0.1:{server.http_port}"
    query = urllib.request.Request(
        f"{url}/api/sql", b'{"query": "SELECT 7"}', {"content-type": "application/json"}
    )
    with (
        urllib.request.urlopen(f"{url}/livez", timeout=10) as probe,
        urllib.request.urlopen(query, timeout=10) as answer,
    ):
        return probe.status == 200 and b"[[7]]" in answer.read()


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_hostile_http_disturbs_nobody(tmp_path: Path, name: str) -> None:
    async def attacked(target: Target) -> None:
        attacks = [KINDS[name](target, Random(number)) for number in range(10)]
        attacking = asyncio.gather(*attacks)
        for _ in range(10):
            assert await asyncio.to_thread(alive, server)
        await attacking

    with bystanders(tmp_path / "data") as server, undisturbed(server):
        asyncio.run(attacked(Target(server.port, server.http_port)))
