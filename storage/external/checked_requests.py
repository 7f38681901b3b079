"""Sessions of the package requests, which packages of others use: they dial checked addresses.

What a session follows, such as a redirect, is a connection of its own and checked alike. Answers
are bounded in size and time; what is compressed counts as it is when it is not.
"""

import socket
from threading import Timer
from time import monotonic
from typing import Any

from requests import Response, Session
from requests.exceptions import ConnectionError
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
)
from urllib3.response import HTTPResponse

from foreshore.storage.external.dial import addresses, first_that

MOST_BYTES = 64 * 2**20  # of an answer: metadata of tables with many snapshots is long
LONGEST_SECONDS = 120.0  # for an answer as a whole
_PART_BYTES = 65_536


def guard(session: Session) -> None:
    """Let the adapters of a session connect to addresses that were checked, by no proxy.

    Its requests then raise InsufficientPrivilege if one is link-local, and ConnectionError if an
    answer has more than MOST_BYTES or takes longer than LONGEST_SECONDS.
    """
    session.hooks["response"].insert(0, _read)
    session.trust_env = False  # neither the server's proxies nor its .netrc
    for adapter in session.adapters.values():
        manager: Any = getattr(adapter, "poolmanager")  # noqa: B009  # only HTTPAdapter has it
        manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}


def _read(response: Response, *, stream: bool = False, **request: Any) -> None:
    """Read an answer, unless the caller reads it in parts."""
    if stream or isinstance(response._content, bytes):
        return
    parts, size, end = [], 0, monotonic() + LONGEST_SECONDS
    try:
        # What has arrived, as a whole part may take for ever.
        while part := response.raw.read1(_PART_BYTES, decode_content=True):
            size += len(part)
            parts.append(part)
            if size > MOST_BYTES:
                raise ConnectionError(f"the answer has more than {MOST_BYTES >> 20} MiB")
            if monotonic() > end:
                raise ConnectionError(f"no whole answer within {LONGEST_SECONDS:.0f} seconds")
    except HTTPError as error:
        raise ConnectionError(error) from error
    finally:
        response.close()
    response._content = b"".join(parts)


class _Checked(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3
        """Return the answer when its headers have come, which must be soon."""
        assert self.sock is not None
        end = monotonic() + LONGEST_SECONDS
        # A connection of TLS, too, has an end that its reader meets, whatever that does now.
        too_late = Timer(LONGEST_SECONDS, socket.socket.shutdown, (self.sock, socket.SHUT_RDWR))
        too_late.daemon = True
        too_late.start()
        try:
            return super().getresponse()
        finally:
            too_late.cancel()
            if monotonic() > end:  # its headers end where the connection was ended
                raise ConnectionResetError(f"no answer within {LONGEST_SECONDS:.0f} seconds")

    def _new_conn(self) -> socket.socket:
        name = self._dns_host

        def connect(address: str) -> socket.socket:
            self._dns_host = address
            return super(_Checked, self)._new_conn()

        failures = (ConnectTimeoutError, NewConnectionError)
        try:
            return first_that(addresses(name, self.port), connect, failures)
        except socket.gaierror as error:
            raise NameResolutionError(name, self, error) from error
        finally:
            self._dns_host = name  # by which TLS knows the other side


class _CheckedTls(_Checked, HTTPSConnection):
    """Connects alike, and speaks TLS."""


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Checked


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _CheckedTls
