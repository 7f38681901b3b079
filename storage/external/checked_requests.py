"""Sessions of the package requests, which packages of others use: they dial checked addresses.

What a session follows, such as a redirect, is a connection of its own and checked alike.
"""

import socket
from typing import Any

from requests import Session
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from foreshore.storage.external.dial import addresses


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
        name, failure = self._dns_host, None
        try:
            for address in addresses(name, self.port):
                self._dns_host = address
                try:
                    return super()._new_conn()
                except (ConnectTimeoutError, NewConnectionError) as error:
                    failure = error
        except socket.gaierror as error:
            raise NameResolutionError(name, self, error) from error
        finally:
            self._dns_host = name  # by which TLS knows the other side
        raise failure or NewConnectionError(self, f"{name} has no address")


class _CheckedTls(_Checked, HTTPSConnection):
    """Connects alike, and speaks TLS."""


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Checked


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _CheckedTls
