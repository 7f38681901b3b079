"""GlobalIds: permanent ids of time-varying collections.

A `GlobalId` identifies one collection and is never reused, not after a drop or a restart. Its first
letter tells the creator: `u7` a user, `s3` the system, `t9` a statement, whose collection ends with
its session.
"""

import re
from typing import Literal, NewType

GlobalId = NewType("GlobalId", str)

IdSpace = Literal["u", "s", "t"]

FIRST_BUILTIN = 1000  # stored system collections have lower numbers

_TEMPORARY = "pg_temp_"
_FORM = re.compile(r"[ust](0|[1-9][0-9]*)\Z")


def global_id(space: IdSpace, number: int) -> GlobalId:
    """Return the id of the `number`-th collection of `space`."""
    assert number >= 0, number
    return GlobalId(f"{space}{number}")


def parse_global_id(text: str) -> GlobalId:
    """Return `text` as a `GlobalId`; raises ValueError if it is malformed."""
    if not _FORM.match(text):
        raise ValueError(f"not a global id: {text!r}")
    return GlobalId(text)


def number_of(id: GlobalId) -> int:
    """Return the number within the id's space, by which ids are ordered and allotted."""
    return int(id[1:])


def is_builtin(id: GlobalId) -> bool:
    """Whether the collection is a builtin relation, which is computed whenever it is read."""
    return id.startswith("s") and number_of(id) >= FIRST_BUILTIN


def is_user(id: GlobalId) -> bool:
    """Whether a user's statement created the collection."""
    return id.startswith("u")


def temporary_schema(session: int) -> str:
    """Return the name, which is also the id, of the schema for a session's temporary objects."""
    return f"{_TEMPORARY}{session}"


def is_temporary(schema: str) -> bool:
    """Whether the schema with this id or name is one for temporary objects."""
    return schema.startswith(_TEMPORARY)
