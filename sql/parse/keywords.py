"""Names and strings as SQL, quoted so that the parser reads them as such.

`foreshore/keywords.py` has PostgreSQL's classes of key words. All other words are free in
PostgreSQL; our parser does not accept all of them (MISPARSED).
"""

from foreshore.keywords import COL_NAME, RESERVED, TYPE_FUNC

# Words that are free in PostgreSQL, but that our parser rejects or misreads in some places.
MISPARSED = frozenset(
    [
        "alter",
        "cube",
        "describe",
        "drop",
        "exclude",
        "glob",
        "insert",
        "list",
        "lock",
        "map",
        "of",
        "partitioned_by",
        "qualify",
        "regexp",
        "revoke",
        "rlike",
        "rollback",
        "rollup",
        "uncache",
        "xor",
    ]
)
_QUOTED = RESERVED | TYPE_FUNC | COL_NAME | MISPARSED


def quote_identifier(name: str) -> str:
    """Return `name` as an SQL identifier, quoted if necessary."""
    plain = (
        name.isascii()
        and name != ""
        and (name[0].islower() or name[0] == "_")
        and all(c.islower() or c.isdigit() or c in "_$" for c in name)
    )
    if plain and name not in _QUOTED:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_string(text: str) -> str:
    """Return `text` as an SQL string constant."""
    return "'" + text.replace("'", "''") + "'"
