"""One request: POST of a body, which blocks. Redirects are not followed, and there is no proxy."""

import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from foreshore.storage.export.webhook.address import Place, address_of

_TEXT_BYTES = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What the other end has answered."""

    status: int
    retry_after: float | None  # seconds, if it says so
    text: str  # the beginning of the body


def post(
    place: Place, body: bytes, headers: Mapping[str, str], seconds: float, *, private: bool
) -> Answer:
    """Send a request and return its answer.

    Raises OSError, and DatabaseError if the address is not allowed. Each step may take `seconds`.
    """
    address = address_of(place, private=private)
    link = socket.create_connection((address, place.port), seconds)
    try:
        if place.is_secure:
            context = ssl.create_default_context()
            link = context.wrap_socket(link, server_hostname=place.host)
        connection = http.client.HTTPConnection(place.host, place.port, timeout=seconds)
        connection.sock = link
        connection.request("POST", place.path, body, dict(headers))
        response = connection.getresponse()
        text = response.read(_TEXT_BYTES).decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise OSError(f"no answer of HTTP: {type(error).__name__} {error}") from error
    finally:
        link.close()
    after = response.getheader("Retry-After", "")
    return Answer(response.status, float(after) if after.isdecimal() else None, text)
