"""Queries that name a DataFrame of the program or a file, as DuckDB's may: hints how to load it."""

import re
from types import FrameType

from foreshore.errors import DatabaseError

_MISSING = re.compile(r'relation "([^"]+)" does not exist\Z')
_FILE = re.compile(r"\.(parquet|csv)\Z")


def hint_at_variable(error: DatabaseError, caller: FrameType) -> None:
    """Add a hint if the relation that does not exist is a frame of the caller, or a file's name."""
    found = _MISSING.match(error.message)
    if found is None or error.hint is not None:
        return
    name = found[1]
    value = caller.f_locals.get(name, caller.f_globals.get(name))
    if file := _FILE.search(name):
        load = f'db.read_{file[1]}("a_name", "{name}")'
    elif hasattr(type(value), "__arrow_c_stream__") or hasattr(type(value), "__dataframe__"):
        load = f'db.register("{name}", {name})'
    else:
        return
    error.hint = f"Queries see no variables and no files: {load} makes a table of it."
    error.add_note(f"HINT:  {error.hint}")
