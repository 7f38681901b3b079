"""An HTTP server over an environment, or over the fake client, on the running loop."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from foreshore.adapter.client import Client
from foreshore.server.admission.authenticator import Authenticator
from foreshore.server.admission.places import Places
from foreshore.server.admission.policy import Policy, Sources
from foreshore.server.http.app import HttpServer
from foreshore.server.http.origins import Origins
from foreshore.server.http.sessions import Sessions
from foreshore.server.lease import Lease
from foreshore.server.ports import bind
from tests.adapter.harness import TestEnvironment, in_environment
from tests.server.serving import standing


@dataclass
class Http:
    """A server, a client of it, and the environment behind it."""

    server: HttpServer
    sessions: Sessions
    port: int
    client: httpx.AsyncClient
    env: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(self, body: Any, **options: Any) -> httpx.Response:
        return await self.client.post("/api/sql", json=body, **options)

    async def results(self, body: Any, **options: Any) -> list[dict[str, Any]]:
        """Return the results of a request that is answered."""
        answer = await self.post(body, **options)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["results"]
        return found

    async def ran(self, *statements: str) -> None:
        """Run statements, of which none fails, one by one."""
        for statement in statements:
            (result,) = await self.results({"query": statement})
            assert "error" not in result, (statement, result)

    async def rows(self, query: str) -> list[list[Any]]:
        """Return the rows of one statement."""
        (result,) = await self.results({"query": query})
        assert "error" not in result, result
        found: list[list[Any]] = result["rows"]
        return found


def policy_of(directory: Path, text: str) -> Policy:
    """Return the policy of a file with these rules."""
    file = directory / "hba.conf"
    file.write_text(text)
    return Policy(Sources(rules=file))


@asynccontextmanager
async def over(
    client: Client,
    *,
    policy: Policy | None = None,
    most: int = 20,
    origins: Origins | None = None,
    tls: ssl.SSLContext | None = None,
    trusting: ssl.SSLContext | bool = True,
) -> AsyncIterator[Http]:
    """Serve a client over HTTP for the length of the block; `trusting` trusts the certificate."""
    server = HttpServer(lambda: True, _consistent, tls)
    port = await server.listen(await bind("127.0.0.1", 0, "--http-listen"))
    authenticator = Authenticator(client, policy or Policy(), b"seed")
    lease = Lease(lambda: None, standing)
    await lease.renew()
    places = Places(most, 0)
    sessions = Sessions(client, authenticator, places, lease, origins or Origins(), "foreshore")
    server.open(sessions)
    url = f"http{'s' if tls else ''}://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(
            base_url=url, timeout=60, trust_env=False, verify=trusting
        ) as asking:
            yield Http(server, sessions, port, asking)
        await sessions.close()
        assert not places.taken
    finally:
        await server.close()


def over_environment(
    data_dir: Path, scenario: Callable[[Http], Awaitable[None]], **options: Any
) -> None:
    """Run `scenario` with a server over an environment of its own."""

    async def serve(env: TestEnvironment) -> None:
        async with over(env.environment, **options) as http:
            http.env = env
            await scenario(http)

    in_environment(data_dir, serve)


async def _consistent() -> None:
    """Find no violation."""
