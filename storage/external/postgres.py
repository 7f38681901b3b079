"""Connections to PostgreSQL servers of those who write there."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from foreshore.storage.external.access import APPLICATION, Access
from foreshore.storage.external.libpq import CONNECT_SECONDS, place_of
from foreshore.storage.external.postgres_failures import unreachable
from foreshore.storage.external.tls import certificates
from foreshore.storage.external.tunnels import HOST, opened_port

_CERTIFICATES = ("ssl certificate authority", "ssl certificate")


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection to the server; raises DatabaseError."""
    connection = await connect(access)
    try:
        yield connection
    finally:
        connection.terminate()


async def connect(access: Access) -> asyncpg.Connection:
    """Return a connection to the server; raises DatabaseError."""
    options = access.options
    tls = tls_of(options)
    host, port = place_of(options)
    through = None
    if access.tunnel is not None:
        through = await opened_port(access.tunnel, host, port)
        tls = named(tls, host)
        host, port = HOST, through.number
    try:
        return await asyncpg.connect(
            host=host,
            port=port,
            database=options["database"],
            user=options["user"],
            password=options.get("password"),
            ssl=tls,
            timeout=CONNECT_SECONDS,
            server_settings={
                "application_name": options.get(APPLICATION, "foreshore"),
                "search_path": "",
            },
        )
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        failed = None if through is None else through.failure
        why = str(error) or "connection timeout expired"
        raise unreachable(access, why, failed) from error


class _Named(ssl.SSLContext):
    """Expects a certificate of a host, whatever the address at which it is reached."""

    host: str

    def wrap_bio(self, *given: Any, **more: Any) -> ssl.SSLObject:
        """Return TLS with the host."""
        return super().wrap_bio(*given, **more | {"server_hostname": self.host})


def named(tls: ssl.SSLContext | str, host: str) -> ssl.SSLContext | str:
    """Return how TLS is used with a host that is reached at an address of the loopback."""
    if isinstance(tls, ssl.SSLContext):
        tls.__class__ = _Named
        tls.host = host  # type: ignore[attr-defined]
        return tls
    if tls in ("verify-ca", "verify-full"):
        return named(_verifying(tls), host)
    return tls


def _verifying(mode: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = mode == "verify-full"
    return context


def tls_of(options: Mapping[str, str]) -> ssl.SSLContext | str:
    """Return how a connection uses TLS, as libpq does it: a mode, or a context by certificates.

    With an authority every mode that uses TLS asks for a certificate of the server by it; with
    certificates TLS is never left out, unless that is the mode. Raises InvalidParameterValue.
    """
    mode = options.get("ssl mode", "prefer")
    if mode == "disable" or not any(each in options for each in _CERTIFICATES):
        return mode
    context = certificates(options)
    context.check_hostname = mode == "verify-full"
    if "ssl certificate authority" not in options and mode not in ("verify-ca", "verify-full"):
        context.verify_mode = ssl.CERT_NONE
    return context
