"""Rights: what a role may do with an object, and what a statement needs.

    GRANT SELECT (a, b), INSERT ON t TO reader WITH GRANT OPTION

An object has a list of `Grant`s, one for each pair of grantor and grantee. An object without a list
has the rights of `initial`: all for its owner, and for PUBLIC those that PostgreSQL gives.
`catalog/acl.py` has the lists after GRANT and REVOKE.

A plan has a list of `Need`s. Those of a view's own query are needed by the view's owner, not by
who reads the view, unless it is a SECURITY INVOKER view.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal as OneOf

import msgspec

from foreshore.ids import GlobalId

Privilege = OneOf[
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "REFERENCES",
    "TRIGGER",
    "USAGE",
    "CREATE",
    "CONNECT",
    "TEMPORARY",
    "EXECUTE",
]
# The letter of each in an aclitem, such as `reader=ar/owner`.
LETTERS: Mapping[Privilege, str] = MappingProxyType(
    {
        "INSERT": "a",
        "SELECT": "r",
        "UPDATE": "w",
        "DELETE": "d",
        "TRUNCATE": "D",
        "REFERENCES": "x",
        "TRIGGER": "t",
        "EXECUTE": "X",
        "USAGE": "U",
        "CREATE": "C",
        "TEMPORARY": "T",
        "CONNECT": "c",
    }
)
# What kind of object has which rights, in the order of aclitems; views are tables here.
RIGHTS: Mapping[str, str] = MappingProxyType(
    {
        "table": "arwdDxt",
        "column": "arwx",
        "sequence": "rwU",
        "database": "CTc",
        "schema": "UC",
        "cluster": "UC",
        "function": "X",
        "type": "U",
        "secret": "U",
        "connection": "U",
    }
)
# What PUBLIC may do with an object that has no list.
TO_PUBLIC: Mapping[str, str] = MappingProxyType({"database": "Tc", "function": "X", "type": "U"})
PUBLIC = ""  # as a grantee


class Grant(msgspec.Struct, frozen=True):
    """Rights that one role has given to another, as letters in the order of aclitems."""

    grantee: str  # the role's id, or PUBLIC
    grantor: str  # the role's id
    rights: str
    grantable: str = ""  # those of `rights` that the grantee may give to others


class Need(msgspec.Struct, frozen=True):
    """A right that a statement needs.

    With `columns` the right on each of them suffices. Without columns, but for a relation of which
    a statement reads no column (`SELECT count(*)`), `any_column`: the right on any one suffices.
    With `instead`, one of those rights on the whole object suffices too.

    `role` is who needs it: None for the role that runs the statement, else a role's id. The needs
    of a view's own query are those of the view's owner, but for those `by_caller`: what functions
    in it read is needed by the role that runs the statement.
    """

    object: GlobalId | str
    privilege: Privilege
    columns: tuple[str, ...] = ()
    any_column: bool = False
    instead: tuple[Privilege, ...] = ()
    by_caller: bool = False
    role: str | None = None


def initial(kind: str, owner: str) -> tuple[Grant, ...]:
    """Return the rights on an object of a kind of RIGHTS that has no list.

    Owners may give all rights to others without options in the list.
    """
    own = Grant(owner, owner, RIGHTS[kind])
    public = TO_PUBLIC.get(kind)
    return (own,) if public is None else (Grant(PUBLIC, owner, public), own)


def open_to_all(kind: str, owner: str, rights: str) -> tuple[Grant, ...]:
    """Return the initial rights on an object, and some for PUBLIC."""
    return (*initial(kind, owner), Grant(PUBLIC, owner, rights))


_OF_OID = "oid:"


def of_oid(oid: object) -> str:
    """Return the object of a need by its oid; None if the oid is known only to the statement."""
    return f"{_OF_OID}{oid if oid is not None else ''}"


def oid_of(object: str) -> int | None:
    """Return the oid in an object of a need, 0 if it is not known before; None if it is an id."""
    return int(object.removeprefix(_OF_OID) or 0) if object.startswith(_OF_OID) else None
