"""Where a server listens: an address by URL, or the Unix socket in a data directory."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from foreshore.embedded.errors import LOST, NotReceived, from_server
from foreshore.errors import DatabaseError
from foreshore.processes.owner import SOCKET_PORT, owner_of, socket_name
from foreshore.processes.socket_path import short_path

USER = DATABASE = "foreshore"
CONNECT_SECONDS = 60.0
APPLICATION = "foreshore-python"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server: `url`, or the `directory` that has its socket."""

    url: str | None = None
    directory: Path | None = None

    @classmethod
    def of(cls, where: str | Path) -> "Address":
        """Return the address that a URL or a directory names."""
        text = str(where)
        if text.startswith(("postgres://", "postgresql://")):
            return cls(url=text)
        directory = Path(where).resolve()
        if (directory / socket_name()).exists():
            return cls(directory=directory)
        holder = owner_of(directory)
        if holder is None:
            raise DatabaseError(
                f'no server serves directory "{directory}"',
                sqlstate="08001",
                hint=f"foreshore.open({text!r}) starts one.",
            )
        if not holder.address:
            raise DatabaseError(
                f'the server of directory "{directory}" does not answer yet',
                sqlstate="08001",
                detail=f"It is {holder}.",
            )
        return cls(url=holder.address)

    async def connect(self) -> asyncpg.Connection:
        """Return an open connection; raises DatabaseError."""
        settings = {"application_name": APPLICATION}
        options: dict[str, Any] = {"timeout": CONNECT_SECONDS, "server_settings": settings}
        try:
            if self.directory is None:
                return await asyncpg.connect(self.url, **options)
            with _host(self.directory) as host:
                return await asyncpg.connect(
                    host=host,
                    port=SOCKET_PORT,
                    user=USER,
                    database=DATABASE,
                    ssl=False,
                    **options,
                )
        except asyncpg.PostgresError as error:
            if not isinstance(error, LOST):
                raise from_server(error) from None
            raise NotReceived(f"could not connect: {error}", sqlstate=error.sqlstate) from None
        except (OSError, ValueError, asyncpg.InterfaceError) as error:
            where = self.url if self.directory is None else self.directory
            raise NotReceived(f"could not connect to {where}: {error}", sqlstate="08001") from error


@contextlib.contextmanager
def _host(directory: Path) -> Any:
    """Yield the directory as a host, by a short path if a socket's address cannot have it."""
    with short_path(str(directory / socket_name())) as path:
        yield str(Path(path).parent)
