"""How a process reaches an external system."""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.connection_spec import ConnectionKind

APPLICATION = "application name"  # an option of every access: what to call ourselves there


class Tunnel(msgspec.Struct, frozen=True):
    """An SSH server, through which a system is reached, with the keys by which it knows us."""

    host: str
    port: int
    user: str
    host_key: str | None  # that it must have; None: the one that it had at first
    kept: str  # the path of the file that keeps this one
    private_keys: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Tunnel({self.host!r}, {self.port}, ...)"


class Access(msgspec.Struct, frozen=True):
    """How to reach an external system: a connection with the values of its secrets."""

    kind: ConnectionKind | OneOf["files", "webhook"]  # places of the server; secrets
    options: dict[str, str]
    tunnel: Tunnel | None = None
    by_superuser: bool = False  # whether the owner is one, who may be trusted by the other side

    def __repr__(self) -> str:
        return f"Access({self.kind!r}, ...)"  # logs must not have secrets


Accesses: TypeAlias = dict[str, Access]  # by the ids of connections
