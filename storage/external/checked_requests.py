"""Sessions of the package requests, which packages of others use: they dial checked addresses.

What a session follows, such as a redirect, is a connection of its own and checked alike.
"""

import socket
from typing import Any

from requests import Session
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from foreshore.storage.external.dial import addresses, first_that


def check_addresses(session: Session) -> None:
    """Let the adapters of a session connect to addresses that were checked, by no proxy.

    Its requests then raise InsufficientPrivilege if one is link-local.
    """
    session.trust_env = False  # neither the server's proxies nor its .netrc
    for adapter in session.adapters.values():
        manager: Any = getattr(adapter, "poolmanager")  # noqa: B009  # only HTTPAdapter has it
        manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}


class _Checked(HTTPConnection):
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
