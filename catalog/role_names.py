"""Names and oids of roles for relations of the system, also of roles that are missing.

No commit leaves a reference to a missing role (`references.py`), but directories of older versions
may have some. They are shown as PostgreSQL shows them: by a number. It is beyond the oids that are
allotted, so that it is never another role's.
"""

from foreshore.catalog.item import Role
from foreshore.catalog.state import State
from foreshore.privileges import PUBLIC

FIRST_UNKNOWN_OID = 4_000_000_000


def is_role(id: str) -> bool:
    """Return whether an id is a role's."""
    return id.startswith("o")


def role_oid(state: State, id: str) -> int:
    """Return the oid of a role; 0 for PUBLIC."""
    if id == PUBLIC:
        return 0
    found = state.get(id)
    if isinstance(found, Role):
        return found.oid
    return FIRST_UNKNOWN_OID + (int(id[1:]) if id[1:].isdigit() else 0)


def role_name(state: State, id: str) -> str:
    """Return the name of a role, the digits of its oid if it is missing."""
    found = state.get(id)
    return found.name if isinstance(found, Role) else str(role_oid(state, id))
