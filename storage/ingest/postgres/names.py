"""Names of a PostgreSQL server, as its users write them in hints."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from foreshore.keywords import COL_NAME, RESERVED, TYPE_FUNC

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*+", re.ASCII)


def quoted(*names: str) -> str:
    """Return names with dots between them, each in quotes if it needs these."""
    return ".".join(map(_quoted, names))


def _quoted(name: str) -> str:
    is_word = name in RESERVED or name in TYPE_FUNC or name in COL_NAME
    if _PLAIN.fullmatch(name) and not is_word:
        return name
    return '"' + name.replace('"', '""') + '"'


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another one; None if none is."""
    found = get_close_matches(name.lower(), by_lower := {each.lower(): each for each in known}, 1)
    return by_lower[found[0]] if found else None
