"""The listener: accepts connections, opens their sessions, and ends all of them at shutdown.

A connection has `login_timeout` seconds to open a session. At most `max_connections` sessions are
open at a time; further clients get 53300. A cancel request opens no session and is always served.

A client that has not proven who it is has no place among the sessions. There are at most
`max_connections + LOGGING_IN` connections: beyond that, of those that have no session yet, the
oldest of the address that has most is ended. So whoever opens connections and leaves them does not
keep out others.
"""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from foreshore.adapter.client import Client, Login, Session, Startup
from foreshore.errors import (
    AdminShutdown,
    DatabaseError,
    FeatureNotSupported,
    InvalidAuthorization,
)
from foreshore.server import message
from foreshore.server.admission.authenticator import Authenticator
from foreshore.server.admission.crowd import crowd
from foreshore.server.admission.places import Place, Places, too_many
from foreshore.server.connection import Conversation, client_error
from foreshore.server.lease import Lease
from foreshore.server.ports import listen
from foreshore.server.protocol import MOST
from foreshore.server.tls import ALPN, Tls
from foreshore.server.wire import Disconnected, Wire
from foreshore.text import truncate_name

logger = logging.getLogger(__name__)

BACKLOG = 1024  # connections that are not accepted yet
DRAIN_STEP_S = 0.05  # between two looks at which sessions have become idle
LOGGING_IN = 50  # connections that have no session yet, or that request a cancel


@dataclass
class Listener:
    """Serves all connections."""

    client: Client
    authenticator: Authenticator
    lease: Lease
    max_connections: int = 1000
    login_timeout: float = 60.0
    tls: Tls | None = None
    reserved: int = 3  # of the connections, for superusers
    max_message: int = MOST  # bytes of one message
    _tasks: dict[asyncio.Task[None], Callable[[], None]] = field(default_factory=dict)  # to end it
    _conversations: dict[asyncio.Task[None], Conversation] = field(default_factory=dict)
    _waiting: dict[asyncio.Task[None], Wire] = field(default_factory=dict)  # have no session yet
    places: Places = field(init=False)  # of all sessions
    _servers: list[asyncio.Server] = field(default_factory=list)
    _closing: DatabaseError | None = None  # the reason, once it is closing

    def __post_init__(self) -> None:
        self.places = Places(self.max_connections, self.reserved)

    async def listen(self, ports: Sequence[socket.socket]) -> int:
        """Begin to accept connections on bound sockets; return the first port, 0 if there is none.

        Sockets may be of TCP or Unix ones.
        """
        loop = asyncio.get_running_loop()
        number = 0
        for port in ports:
            listen(port, BACKLOG)  # raises errors, which uvloop's create_server does not
            is_unix = port.family == socket.AF_UNIX
            create = loop.create_unix_server if is_unix else loop.create_server
            server = await create(lambda: Wire(self.lease, self._start), sock=port, backlog=BACKLOG)
            self._servers.append(server)
            if not is_unix:
                number = number or int(port.getsockname()[1])
        return number

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Accept no more connections, end idle sessions, and let the others end their statements.

        It lasts at most some seconds, and until `hurry` is set.
        """
        self._closing = AdminShutdown()
        for server in self._servers:
            server.close()
        loop = asyncio.get_running_loop()
        end_at = loop.time() + seconds
        while self._tasks and not hurry.is_set() and loop.time() < end_at:
            for task, end in list(self._tasks.items()):
                if task not in self._conversations or self._conversations[task].may_end:
                    end()
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_STEP_S):
                    await hurry.wait()

    async def close(self, reason: DatabaseError | None = None) -> None:
        """Accept no more connections and end the open ones, after commits that are in progress.

        Clients get `reason`, by default that an administrator has shut the server down.
        """
        self._closing = reason or AdminShutdown()
        for server in self._servers:
            server.close()
        for end in list(self._tasks.values()):
            end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)

    def _start(self, wire: Wire) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._serve(wire), context=wire.context)
        self._tasks[task] = wire.cancel
        self._waiting[task] = wire
        task.add_done_callback(self._forget)
        if len(self._tasks) > self.max_connections + LOGGING_IN:
            self._end_oldest()
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)
        self._waiting.pop(task, None)
        self._conversations.pop(task, None)

    def _end_oldest(self) -> None:
        """End the oldest connection without a session, of the address that has most of them."""
        for task in crowd({task: wire.host for task, wire in self._waiting.items()})[:1]:
            del self._waiting[task]
            self._tasks[task]()

    async def _serve(self, wire: Wire) -> None:
        """Serve one connection to its end; no exception leaves this task."""
        opened: tuple[Session, Place] | None = None
        reason: DatabaseError | None = None  # why the session is to end

        def terminate(why: DatabaseError) -> None:
            nonlocal reason
            reason = why
            wire.cancel()

        try:
            async with asyncio.timeout(self.login_timeout):
                opened = await self._open(wire)
            if opened is not None:
                session, _ = opened
                session.interrupts.when_terminated(terminate)
                task = asyncio.current_task()
                assert task is not None
                self._waiting.pop(task, None)
                self._tasks[task] = lambda: session.interrupts.terminate(
                    self._closing or AdminShutdown()
                )
                conversation = Conversation(wire, session)
                self._conversations[task] = conversation
                await conversation.run()
        except Disconnected:
            pass
        except TimeoutError:
            logger.info("login timed out", extra={"peer": wire.peer})
        except ssl.SSLError as error:
            logger.info("could not accept TLS connection: %s", error, extra={"peer": wire.peer})
        except asyncio.CancelledError:
            reason = self._closing or reason
            if reason is None and opened is None:
                reason = too_many()
            if reason is None:
                logger.warning("a connection was cut off", extra={"peer": wire.peer})
        except Exception as error:
            wire.put(message.error_response(client_error(error), fatal=True))
        finally:
            wire.finish()
            if opened is not None:
                session, place = opened
                place.release()
                try:
                    await session.close()
                except Exception:
                    logger.exception("a session could not be closed")
            wire.reader.close()
            wire.close(b"" if reason is None else message.error_response(reason, fatal=True))

    async def _open(self, wire: Wire) -> tuple[Session, Place] | None:
        """Return the session that the first messages request; None for a cancel request."""
        startup = await self._startup(wire)
        if startup is None:
            return None
        user = truncate_name(startup.parameters.get("user", ""))
        if not user:
            raise InvalidAuthorization("no PostgreSQL user name specified in startup packet")
        if startup.parameters.get("replication", "false") not in ("false", "off", "no", "0"):
            raise FeatureNotSupported("replication connections are not supported")
        if self._closing:
            raise too_many()
        self.places.check()
        unknown = [name for name in startup.parameters if name.startswith("_pq_.")]
        minor = min(startup.minor, message.NEWEST_MINOR)
        if minor < startup.minor or unknown:
            wire.put(message.negotiate_version(minor, unknown))
        database = truncate_name(startup.parameters.get("database") or user)
        login = await self.authenticator.authenticate(wire, user, database)
        place = self.places.take(login)
        try:
            return await self._greet(wire, startup, login, database, minor), place
        except BaseException:
            place.release()
            raise

    async def _greet(
        self,
        wire: Wire,
        startup: message.StartupMessage,
        login: Login,
        database: str,
        minor: int,
    ) -> Session:
        """Return the session of a client that has proven who it is, and greet the client."""
        key_bytes = 32 if minor >= 2 else 4
        session = await self.client.connect(
            Startup(
                login.name,
                database,
                _settings(startup.parameters),
                wire.peer,
                key_bytes,
                None if wire.tls is None else wire.tls.described(),
                login,
            )
        )
        wire.put(message.AUTHENTICATION_OK)
        wire.reader.open(self.max_message)
        for name, value in session.news.changed_parameters().items():
            wire.put(message.parameter_status(name, value))
        wire.put(message.backend_key_data(session.pid, session.backend.secret))
        return session

    async def _startup(self, wire: Wire) -> message.StartupMessage | None:
        """Return the startup message, after answering what precedes it; None: it was a cancel."""
        asked: set[type] = set()
        if await wire.upcoming() == message.TLS_HANDSHAKE:
            await self._direct_tls(wire)
            asked.add(message.SslRequest)
        while True:
            while (opening := wire.reader.opening()) is None:
                await wire.more()
            match opening:
                case message.StartupMessage():
                    return opening
                case message.CancelRequest(pid=pid, secret=secret):
                    self.client.cancel(pid, secret)
                    return None
                case message.SslRequest() | message.GssRequest():
                    if type(opening) in asked:
                        raise message.FramingError("encryption has been asked for before")
                    asked.add(type(opening))
                    if self.tls is not None and isinstance(opening, message.SslRequest):
                        await self._negotiated_tls(wire, self.tls)
                    else:
                        wire.put(message.REFUSE_ENCRYPTION)
                        wire.flush()

    async def _negotiated_tls(self, wire: Wire, tls: Tls) -> None:
        """Accept TLS; raises FramingError if anything has followed the request (CVE-2021-23222)."""
        if wire.reader.buffered:
            raise message.FramingError(
                "received unencrypted data after SSL request",
                detail="This could be either a client-software bug or evidence of an attempted "
                "man-in-the-middle attack.",
            )
        wire.put(message.ACCEPT_TLS)
        await wire.sent()
        await wire.start_tls(tls.credentials)

    async def _direct_tls(self, wire: Wire) -> None:
        """Begin TLS without a request, for which the client has to name the protocol by ALPN."""
        if self.tls is None:
            raise ssl.SSLError("received direct SSL connection request, but TLS is not configured")
        await wire.start_tls(self.tls.credentials)
        if wire.tls is None or wire.tls.protocol != ALPN:
            raise ssl.SSLError(
                "received direct SSL connection request without ALPN protocol negotiation extension"
            )


def _settings(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the session variables that a startup packet sets, also by its `options`."""
    found = _options(parameters.get("options", ""))
    others = {"user", "database", "replication", "options"}
    for name, value in parameters.items():
        if name not in others and not name.startswith("_pq_."):
            found[name] = value
    return found


def _options(text: str) -> dict[str, str]:
    """Return the settings of a startup packet's `options`: -c k=v, -ck=v or --k=v."""
    found: dict[str, str] = {}
    for word in re.findall(r"(?:\\.|[^\s\\])+", text, re.DOTALL):
        setting = re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL)
        name, equals, value = setting.removeprefix("--").removeprefix("-c").partition("=")
        if equals:
            found[name.replace("-", "_")] = value
    return found
