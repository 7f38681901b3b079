"""GlobalIds: names of collections over time, bound once and for ever.

A `GlobalId` names one time-varying collection and is never bound again, not after a drop, not
after a restart. Its first letter tells who made it: `u7` a user, `s3` the system, `t9` a
statement that will be gone with its session.
"""

import re
from typing import Literal, NewType

GlobalId = NewType("GlobalId", str)

IdSpace = Literal["u", "s", "t"]

FIRST_BUILTIN = 1000  # of the numbers of the system's: what is stored has lesser ones

_TEMPORARY = "pg_temp_"
_FORM = re.compile(r"[ust](0|[1-9][0-9]*)\Z")


def global_id(space: IdSpace, number: int) -> GlobalId:
    """Return the id of the `number`-th collection of `space`."""
    assert number >= 0, number
    return GlobalId(f"{space}{number}")


def parse_global_id(text: str) -> GlobalId:
    """Return `text` as a `GlobalId`; raises ValueError if it does not have the form of one."""
    if not _FORM.match(text):
        raise ValueError(f"not a global id: {text!r}")
    return GlobalId(text)


def number_of(id: GlobalId) -> int:
    """Return the number within its space, by which ids are ordered and allotted."""
    return int(id[1:])


def is_builtin(id: GlobalId) -> bool:
    """Whether the collection is the system's and not stored: made anew each time it is read."""
    return id.startswith("s") and number_of(id) >= FIRST_BUILTIN


def is_user(id: GlobalId) -> bool:
    """Whether a user's statement made the collection."""
    return id.startswith("u")


def temporary_schema(session: int) -> str:
    """Return what the schema of a session's temporary objects is called; its id is the same."""
    return f"{_TEMPORARY}{session}"


def is_temporary(schema: str) -> bool:
    """Whether a schema, by its id or its name, is one of temporary objects."""
    return schema.startswith(_TEMPORARY)
