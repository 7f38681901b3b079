"""Sends the changes of an interval to a URL, in requests that a repeat makes again.

The other end keeps no frontier, so that is in our catalog: it moves when all requests of an
interval were answered. A change is sent at least once. A request that is repeated has the same key,
and a change that is sent again in another interval has its time.
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator

import pyarrow as pa

from foreshore import blocking
from foreshore.errors import ConnectionFailure, InvalidParameterValue
from foreshore.sinks.webhook import SECRETS, WebhookTarget
from foreshore.storage.export.messages import Export
from foreshore.storage.export.webhook.address import place_of
from foreshore.storage.export.webhook.bodies import Body, bodies_of
from foreshore.storage.export.webhook.request import Answer, Call
from foreshore.storage.external.retries import waits
from foreshore.update import Timestamp

TRIES = 5  # of one request, after which the interval begins anew
LONGEST_WAIT_SECONDS = 60.0
_AGAIN = (408, 425, 429)


class WebhookExporter:
    """Sends requests to one URL."""

    def __init__(self, export: Export) -> None:
        assert isinstance(export.spec.target, WebhookTarget), export
        self._export = export
        self._target = export.spec.target
        self._place = place_of(self._target.url)
        self._secrets = export.accesses[SECRETS].options
        self._headers = {
            each.name: _checked(each.name, each.value or self._secrets[each.secret])
            for each in self._target.headers
        }

    async def resume(self) -> Timestamp | None:
        """Return None: the other end keeps no frontier."""
        return None

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Send an interval, one request after the other."""
        bodies = bodies_of(self._export, lower, upper)
        async for part in parts:
            for body in await blocking.run(None, bodies.add, part):
                await self._send(body, lower, upper)
        if (last := bodies.last()) is not None:
            await self._send(last, lower, upper)

    async def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    async def _send(self, body: Body, lower: Timestamp, upper: Timestamp) -> None:
        """Send a request until it is accepted; raises ConnectionFailure if it is refused."""
        key = f"{self._export.name}-{lower}-{upper}-{body.part}"
        pauses = waits()
        for left in reversed(range(TRIES)):
            try:
                answer = await self._post(body.data, key)
            except OSError as error:
                if not left:
                    raise ConnectionFailure(f"{self._place.host}: {error}") from error
                await asyncio.sleep(next(pauses))
                continue
            if 200 <= answer.status < 300:
                return
            is_passing = answer.status in _AGAIN or answer.status >= 500
            if not is_passing or not left:
                raise ConnectionFailure(self._refusal(answer))
            await asyncio.sleep(min(answer.retry_after or next(pauses), LONGEST_WAIT_SECONDS))

    async def _post(self, body: bytes, key: str) -> Answer:
        target, seconds = self._target, self._target.timeout_ms / 1000
        headers = self._headers | {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "User-Agent": "Foreshore",
        }
        if target.secret:
            headers["Foreshore-Signature"] = signature(self._secrets[target.secret], body)
        call = Call()
        try:
            async with asyncio.timeout(2 * seconds):
                return await asyncio.to_thread(
                    call.post, self._place, body, headers, seconds, private=target.private
                )
        except TimeoutError:
            raise OSError(f"no whole answer within {2 * seconds:g} seconds") from None
        finally:
            call.end()  # its thread must not wait for longer

    def _refusal(self, answer: Answer) -> str:
        text = " ".join(answer.text.split())
        said = f"{self._place.host} has answered with status {answer.status}"
        if 300 <= answer.status < 400:
            return f"{said}: redirects are not followed"
        return f"{said}: {text}" if text else said


def _checked(name: str, value: str) -> str:
    """Return a header's value; raises if it cannot be sent, without the value, which is secret."""
    if not value.isascii() or not value.isprintable():
        raise InvalidParameterValue(
            f'the value of header "{name}" must have printable ASCII characters only',
            hint="Does the secret end with a line break?",
        )
    return value


def signature(secret: str, body: bytes) -> str:
    """Return the signature of a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
