"""One request: POST of a body, which blocks. Redirects are not followed, and there is no proxy."""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from foreshore.storage.export.webhook.address import Place, addresses_of
from foreshore.storage.external.dial import first_that

_TEXT_BYTES = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What the other end has answered."""

    status: int
    retry_after: float | None  # seconds, if it says so
    text: str  # the beginning of the body, if the status is not 2xx


class Call:
    """A request that can be ended from another thread."""

    def __init__(self) -> None:
        self._link: socket.socket | None = None
        self._is_ended = False

    def end(self) -> None:
        """Let `post` fail soon, whatever it waits for. Any thread may call it."""
        self._is_ended = True
        link = self._link
        if link is not None:
            with contextlib.suppress(OSError):  # it is closed already
                socket.socket.shutdown(link, socket.SHUT_RDWR)

    def _linked(self, link: socket.socket) -> None:
        self._link = link
        if self._is_ended:
            raise TimeoutError("the request has taken too long")

    def post(
        self,
        place: Place,
        body: bytes,
        headers: Mapping[str, str],
        seconds: float,
        *,
        private: bool,
    ) -> Answer:
        """Send a request and return its answer. Blocks.

        Raises OSError, and DatabaseError if the address is not allowed. Each step may take
        `seconds`.
        """
        link = first_that(
            addresses_of(place, private=private),
            lambda address: socket.create_connection((address, place.port), seconds),
        )
        try:
            self._linked(link)
            if place.is_secure:
                context = ssl.create_default_context()
                link = secure = context.wrap_socket(
                    link, server_hostname=place.host, do_handshake_on_connect=False
                )
                self._linked(link)
                secure.do_handshake()
            connection = http.client.HTTPConnection(place.host, place.port, timeout=seconds)
            connection.sock = link
            connection.request("POST", place.path, body, dict(headers))
            response = connection.getresponse()
            # What has been accepted must not be sent again because its body does not come.
            text = "" if response.status // 100 == 2 else _beginning(response)
        except http.client.HTTPException as error:
            raise OSError(f"no answer of HTTP: {type(error).__name__} {error}") from error
        finally:
            link.close()
        after = response.getheader("Retry-After", "")
        return Answer(response.status, float(after) if after.isdecimal() else None, text)


def _beginning(response: http.client.HTTPResponse) -> str:
    """Return the beginning of a body, or nothing if it does not come."""
    try:
        return response.read(_TEXT_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""
