"""Answers over HTTP that are read as a whole, and are bounded in size and time."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx

from foreshore.storage.external.link_local import check_endpoint_soon

SECONDS = 10.0  # without a byte of an answer
LONGEST_SECONDS = 30.0  # for an answer as a whole
MOST_BYTES = 16 * 2**20  # of an answer
FAILURES = (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError, RecursionError)
MOST_SAID = 500  # characters
_PART_BYTES = 65_536
_KEPT = ("location", "content-type")  # headers of answers


def client(**options: Any) -> httpx.AsyncClient:
    """Return a client that asks for answers that are not compressed, and uses no proxy."""
    headers = {"Accept-Encoding": "identity"}  # so that the bytes read are all there are
    return httpx.AsyncClient(timeout=SECONDS, trust_env=False, headers=headers, **options)


async def asked(client: httpx.AsyncClient, method: str, url: str, **request: Any) -> httpx.Response:
    """Return an answer, whatever its status.

    Raises FAILURES, also if it has more than MOST_BYTES or takes longer than LONGEST_SECONDS, and
    InsufficientPrivilege if the address is link-local.
    """
    async with asyncio.timeout(LONGEST_SECONDS), AsyncExitStack() as stack:
        await check_endpoint_soon(url)
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


def reason(error: Exception) -> str:
    """Return what one of FAILURES says."""
    if isinstance(error, TimeoutError):
        return f"no whole answer within {LONGEST_SECONDS:.0f} seconds"
    return shortened(error) or type(error).__name__


def shortened(said: object) -> str:
    """Return what another system says in at most MOST_SAID characters."""
    return str(said)[:MOST_SAID]
