"""The sessions of HTTP clients: who may open one, and how all of them end.

They are sessions like those of the PostgreSQL port: they have the same rules, places, rights and
network policies, are shown in pg_stat_activity, and can be cancelled and terminated.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from foreshore.adapter.client import Client, Encryption, Login, Session, Startup
from foreshore.errors import AdminShutdown, DatabaseError, InvalidAuthorization, Unavailable
from foreshore.server.admission.authenticator import Authenticator, Credentials
from foreshore.server.admission.places import Places
from foreshore.server.http.ending import Ending
from foreshore.server.http.origins import Origins
from foreshore.server.lease import Lease

logger = logging.getLogger(__name__)

DRAIN_STEP_S = 0.05  # between two looks at which sessions have become idle
CLOSE_S = 10  # for sessions that are to end
READ_ONLY = {"default_transaction_read_only": "on"}


@dataclass(eq=False)
class Opened:
    """A session, and the ending of the request that uses it."""

    session: Session
    ending: Ending
    may_end: bool = False  # whether the end of the session interrupts nothing that ends by itself
    closed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Claim:
    """Who a client says that it is; a role that is not named is the first one, or a token's."""

    user: str | None = None
    password: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Guest:
    """A client that may open a session in a database."""

    login: Login
    database: str
    peer: str
    encryption: Encryption | None


@dataclass
class Sessions:
    """The sessions of the clients of one HTTP server; `first` is the first role and database."""

    client: Client
    authenticator: Authenticator
    places: Places
    lease: Lease
    origins: Origins
    first: str
    _open: set[Opened] = field(default_factory=set)
    _closing: DatabaseError | None = None  # the reason, once they are to end

    async def admit(self, connection: HTTPConnection, claim: Claim, database: str) -> Guest:
        """Return a client that may open a session in a database.

        Raises InvalidAuthorization, InvalidPassword, TooManyConnections.
        """
        if self._closing is not None:
            raise self._closing
        self.places.check()
        host, port = connection.client or ("", 0)
        peer, encrypted = f"{host}:{port}", connection.url.scheme in ("https", "wss")
        user = claim.user or self.first
        given = Credentials(user, claim.password, database, host, peer, encrypted, claim.token)
        admitted = await self.authenticator.check_credentials(given)
        if not admitted.proven:
            self.origins.check_host(connection)
        encryption = _encryption(connection) if encrypted else None
        return Guest(admitted.login, database, peer, encryption)

    @asynccontextmanager
    async def open(
        self, guest: Guest, variables: Mapping[str, str], ending: Ending
    ) -> AsyncIterator[Opened]:
        """Open a session with these variables for the length of the block.

        Raises TooManyConnections, and what is wrong with the variables.
        """
        if self._closing is not None:
            raise self._closing
        place = self.places.take(guest.login)
        try:
            session = await self.client.connect(
                Startup(
                    guest.login.name,
                    guest.database,
                    variables,
                    guest.peer,
                    encryption=guest.encryption,
                    login=guest.login,
                )
            )
            session.interrupts.when_terminated(ending.end)
            opened = Opened(session, ending)
            self._open.add(opened)
            try:
                yield opened
            finally:
                ending.finish()
                await _closed(session)
                self._open.discard(opened)
                opened.closed.set()
        finally:
            place.release()

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Open no more sessions, end idle ones, and let the others end their statements.

        It lasts at most some seconds, and until `hurry` is set.
        """
        self._closing = AdminShutdown()
        loop = asyncio.get_running_loop()
        end_at = loop.time() + seconds
        while self._open and not hurry.is_set() and loop.time() < end_at:
            for each in list(self._open):
                if each.may_end:
                    each.session.interrupts.terminate(self._closing)
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_STEP_S):
                    await hurry.wait()

    async def close(self, reason: DatabaseError | None = None) -> None:
        """Open no more sessions and end all, after commits that are in progress."""
        self._closing = reason or AdminShutdown()
        for each in list(self._open):
            each.session.interrupts.terminate(self._closing)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                for each in list(self._open):
                    await each.closed.wait()

    async def leased(self) -> None:
        """Wait until the server may send answers: until the data is known to be its own."""
        while not self.lease.is_valid():
            await asyncio.shield(self.lease.next_renewal())


def claimed(connection: HTTPConnection) -> Claim:
    """Return who a request says that its client is; raises InvalidAuthorization."""
    header = connection.headers.get("authorization")
    if header is None:
        return Claim()
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return Claim(token=value.strip())
    if scheme.lower() != "basic":
        raise InvalidAuthorization(
            f'authorization scheme "{scheme[:20]}" is not supported',
            hint="Send a role and its password by the scheme Basic, or a token by Bearer.",
        )
    try:
        user, colon, password = (
            base64.b64decode(value.strip(), validate=True).decode().partition(":")
        )
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon or "\0" in user or "\0" in password:
        raise InvalidAuthorization("invalid Authorization header")
    return Claim(user, password)


async def _closed(session: Session) -> None:
    try:
        await session.close()
    except Exception:
        logger.exception("a session could not be closed")


def _encryption(connection: HTTPConnection) -> Encryption | None:
    """Return the TLS of a connection, as pg_stat_ssl shows it."""
    tls = connection.scope["state"]["transport"].get_extra_info("ssl_object")
    cipher = None if tls is None else tls.cipher()
    return None if cipher is None else Encryption(tls.version(), cipher[0], cipher[2])


def named_by_agent(connection: HTTPConnection) -> dict[str, str]:
    """Return the session variable `application_name`, which is the client's User-Agent."""
    return {"application_name": connection.headers.get("user-agent") or "http"}


def database_of(options: dict[str, str], default: str) -> str:
    """Return the database that options name, and take it out of them."""
    return options.pop("database", default)


def not_ready() -> DatabaseError:
    """Return the error of a request that comes before the data is opened."""
    return Unavailable("the database system is starting up")
