"""The settings of ALTER SYSTEM: one object, which exists since the first of them was set.

Sessions begin with them, below those of databases and roles. Those that are the server's own, such
as how long the audit is kept, hold from the commit on.
"""

import msgspec

from foreshore.catalog.item import FIRST_ROLE_ID, SystemSettings
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.settings import VARIABLES

ID = "y1"


def system_settings(state: State) -> dict[str, str]:
    """Return the values of ALTER SYSTEM SET by the names of settings."""
    found = state.get(ID)
    return found.settings if isinstance(found, SystemSettings) else {}


def system_setting(state: State, name: str) -> str:
    """Return the value of a setting of the server."""
    return system_settings(state).get(name, VARIABLES[name].default)


def set_system_settings(change: Transaction, settings: dict[str, str]) -> None:
    """Replace the settings."""
    found = change.state.get(ID)
    if isinstance(found, SystemSettings):
        change.put(msgspec.structs.replace(found, settings=settings))
    else:
        change.put(SystemSettings(ID, change.allot("oid"), "system", FIRST_ROLE_ID, settings))
