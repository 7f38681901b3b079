"""Answers over HTTP that are read as a whole, and are bounded in size and time.

Requests go to an address that was checked (`dial.py`), by no proxy, and with nothing but what the
connection says: neither the environment nor a `.netrc` is asked. Redirects are not followed.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

import httpcore
import httpx

from foreshore.storage.external.dial import addresses_soon, first_that_soon

SECONDS = 10.0  # without a byte of an answer
LONGEST_SECONDS = 30.0  # for an answer as a whole
MOST_BYTES = 16 * 2**20  # of an answer
FAILURES = (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError, RecursionError)
MOST_SAID = 500  # characters
_PART_BYTES = 65_536
_PASSING = (408, 425, 429)  # too slow, too early, too many requests
_KEPT = ("content-type",)  # headers of answers


class _Checked(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were checked."""

    def __init__(self) -> None:
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore names it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of a host that takes the connection."""
        try:
            found = await addresses_soon(host, port)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return await first_that_soon(
            found,
            lambda each: self._network.connect_tcp(
                each, port, timeout, local_address, socket_options
            ),
            (httpcore.ConnectError, httpcore.ConnectTimeout),
        )

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)


def client(*, auth: Any = None, verify: Any = True) -> httpx.AsyncClient:
    """Return a client that asks for answers that are not compressed."""
    headers = {"Accept-Encoding": "identity"}  # so that the bytes read are all there are
    context = httpx.create_ssl_context(verify=verify, trust_env=False)
    transport = httpx.AsyncHTTPTransport(verify=context)
    transport._pool = httpcore.AsyncConnectionPool(context, network_backend=_Checked())
    return httpx.AsyncClient(
        timeout=SECONDS, trust_env=False, headers=headers, auth=auth, transport=transport
    )


async def asked(client: httpx.AsyncClient, method: str, url: str, **request: Any) -> httpx.Response:
    """Return an answer, whatever its status.

    Raises FAILURES, also if it has more than MOST_BYTES or takes longer than LONGEST_SECONDS, and
    InsufficientPrivilege if the address is link-local.
    """
    async with asyncio.timeout(LONGEST_SECONDS), AsyncExitStack() as stack:
        response = await stack.enter_async_context(client.stream(method, url, **request))
        parts, size = [], 0
        async for part in response.aiter_bytes(_PART_BYTES):
            size += len(part)
            if size > MOST_BYTES:
                raise ValueError(f"the answer has more than {MOST_BYTES >> 20} MiB")
            parts.append(part)
    return httpx.Response(
        response.status_code,
        headers={name: response.headers[name] for name in _KEPT if name in response.headers},
        content=b"".join(parts),
        request=response.request,
    )


def is_passing(status: int) -> bool:
    """Whether the same request may succeed later, though nobody changes anything here."""
    return status >= 500 or status in _PASSING


def reason(error: Exception) -> str:
    """Return what one of FAILURES says."""
    if isinstance(error, TimeoutError):
        return f"no whole answer within {LONGEST_SECONDS:.0f} seconds"
    return shortened(error) or type(error).__name__


def shortened(said: object) -> str:
    """Return what another system says in at most MOST_SAID characters."""
    return str(said)[:MOST_SAID]
