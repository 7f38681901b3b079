"""How a process reaches an external system."""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.connection_spec import ConnectionKind


class Access(msgspec.Struct, frozen=True):
    """How to reach an external system: a connection with the values of its secrets."""

    kind: ConnectionKind | OneOf["files", "webhook"]  # places of the server; secrets
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"Access({self.kind!r}, ...)"  # logs must not have secrets


Accesses: TypeAlias = dict[str, Access]  # by the ids of connections
