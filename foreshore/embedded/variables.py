"""Queries that name a DataFrame of the program, as DuckDB's may: the error tells of `register`."""

import re
from types import FrameType

from foreshore.errors import DatabaseError

_MISSING = re.compile(r'relation "([^"]+)" does not exist\Z')


def hint_at_variable(error: DatabaseError, caller: FrameType) -> None:
    """Add a hint if the relation that does not exist is a frame among the caller's variables."""
    found = _MISSING.match(error.message)
    if found is None or error.hint is not None:
        return
    name = found[1]
    value = caller.f_locals.get(name, caller.f_globals.get(name))
    if hasattr(type(value), "__arrow_c_stream__") or hasattr(type(value), "__dataframe__"):
        error.hint = f'Queries see no variables: db.register("{name}", {name}) makes a table of it.'
        error.add_note(f"HINT:  {error.hint}")
