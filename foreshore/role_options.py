"""Roles as statements name them, and the options of CREATE ROLE and ALTER ROLE."""

from typing import Literal as OneOf

import msgspec


class RoleName(msgspec.Struct, frozen=True):
    """A role by its name, or one of the session, or PUBLIC."""

    name: str
    means: OneOf["named", "current", "session", "public"] = "named"


class Password(msgspec.Struct, frozen=True):
    """A password or its verifier, which no text shows; None: none."""

    secret: str | None

    def __repr__(self) -> str:
        return "Password(...)"


class RoleOptions(msgspec.Struct, frozen=True):
    """Attributes of a role; those that are None stay as they are.

    `valid_until` is the text of a time.
    """

    superuser: bool | None = None
    create_db: bool | None = None
    create_role: bool | None = None
    create_cluster: bool | None = None
    create_network_policy: bool | None = None
    inherit: bool | None = None
    login: bool | None = None
    replication: bool | None = None
    bypass_rls: bool | None = None
    connection_limit: int | None = None
    valid_until: str | None = None
    password: Password | None = None
