"""Regular expressions that take messages apart: RE2, whose time is linear in the text."""

from typing import Any

import re2

from foreshore.errors import InvalidParameterValue

MOST_CHARACTERS = 10_000
MOST_GROUPS = 1_600  # as many as a table has columns
MOST_BYTES = 8 << 20  # of memory for a compiled expression


def compiled(pattern: str) -> Any:
    """Return an expression; raises InvalidParameterValue if it is wrong or has no groups."""
    if len(pattern) > MOST_CHARACTERS:
        raise InvalidParameterValue("the regular expression is too long")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_BYTES
    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        why = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise InvalidParameterValue(f"invalid regular expression: {why}") from None
    if not 0 < found.groups <= MOST_GROUPS:
        raise InvalidParameterValue(
            f"the regular expression must have from 1 to {MOST_GROUPS} groups",
            hint="A group is written (?P<name>...), and becomes a column.",
        )
    return found


def group_names(pattern: str) -> tuple[str, ...]:
    """Return the names of the groups; raises as `compiled` does.

    A group without a name is called by its number, such as column2.
    """
    found = compiled(pattern)
    named = {number: name for name, number in found.groupindex.items()}
    return tuple(named.get(each, f"column{each}") for each in range(1, found.groups + 1))
