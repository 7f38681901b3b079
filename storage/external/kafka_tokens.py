"""Tokens of an OAuth2 server, by which Kafka's brokers know a connection (SASL OAUTHBEARER).

librdkafka could fetch them, too, but by the proxies of the environment, from whatever address a
name means then, and with the server's answer in its errors. Here they are asked for as all else is
over HTTP (`bounded_http.py`).
"""

import asyncio
import base64
import json
import logging
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx

from foreshore.errors import ConnectionFailure, DatabaseError
from foreshore.storage.external.bounded_http import FAILURES, asked, client, is_passing, reason
from foreshore.storage.external.tls import certificates

logger = logging.getLogger(__name__)

TOKENS = (
    "Check OAUTH2 SERVER URL, SASL USERNAME (the client's id), SASL PASSWORD (its secret) and SCOPE"
    " of the connection."
)
_LEAST_SECONDS = 10.0  # after which a client asks again, at least
Token = tuple[str, float, str, dict[str, str]]  # text, end in seconds since 1970, subject, more


class Tokens:
    """Gives a client of librdkafka a token whenever it needs one. Both calls block.

    The first raises DatabaseError if there is none now. Later, when the server is away, the client
    gets the last token again; brokers refuse it once it has ended, and the client asks again soon.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._last = _new(options)
        self._is_first = True
        self.failure: DatabaseError | None = None  # why the last token was not renewed

    def __call__(self, _: str) -> Token:
        """Return a token."""
        if not self._is_first:
            self._renew()
        self._is_first = False
        text, ends, subject, extensions = self._last
        return text, max(ends, time.time() + _LEAST_SECONDS), subject, extensions

    def _renew(self) -> None:
        try:
            self._last, self.failure = _new(self._options), None
        except DatabaseError as error:
            self.failure = error
            logger.warning("a token is not renewed", extra={"error": error.message})


def _new(options: Mapping[str, str]) -> Token:
    """Return a token; raises DatabaseError, without what the server has said."""
    begins = f"no token for Kafka at {options['broker']}: the OAuth2 server"
    try:
        document = asyncio.run(_answer(options))
        return _token(document, options)
    except httpx.HTTPStatusError as error:
        message = f"{begins} answers with status {error.response.status_code}"
        if is_passing(error.response.status_code):
            raise ConnectionFailure(message) from None
        raise DatabaseError(message, sqlstate="28P01", hint=TOKENS) from None
    except (httpx.HTTPError, TimeoutError) as error:
        raise ConnectionFailure(f"{begins}: {reason(error)}", hint=TOKENS) from None
    except (*FAILURES, KeyError, TypeError):
        raise DatabaseError(
            f"{begins} answers without a token", sqlstate="28P01", hint=TOKENS
        ) from None


async def _answer(options: Mapping[str, str]) -> Any:
    url = options["oauth2 server url"]
    form = {"grant_type": "client_credentials"}
    if "scope" in options:
        form["scope"] = options["scope"]
    context: Any = True
    if "ssl certificate authority" in options and url.startswith("https:"):
        only = "ssl certificate authority"
        context = certificates({only: options[only]})
    auth = (options["sasl username"], options["sasl password"])
    async with client(auth=auth, verify=context) as http:
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        response = await asked(http, "POST", url, headers=headers, content=urlencode(form))
    return response.raise_for_status().json()


def _token(document: Any, options: Mapping[str, str]) -> Token:
    text = str(document["access_token"])
    body = text.split(".")[1] if text.count(".") == 2 else ""
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)) or b"{}")
    ends = float(claims.get("exp") or time.time() + float(document.get("expires_in", 300)))
    return text, ends, str(claims.get("sub", "")), _extensions(options)


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    """Return what is sent beside a token: `name=value`, by commas."""
    pairs = [each.partition("=") for each in options.get("oauth2 extensions", "").split(",")]
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}
