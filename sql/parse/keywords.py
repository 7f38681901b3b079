"""PostgreSQL's key words in the parser, and names quoted so that it reads them as names.

`NEEDS_AS` may be a column label only after AS; `foreshore/keywords.py` has the other classes. All
other words are free in PostgreSQL; our parser does not accept all of them (MISPARSED).
"""

from foreshore.keywords import COL_NAME, RESERVED, TYPE_FUNC

NEEDS_AS = frozenset(
    [
        "array",
        "as",
        "char",
        "character",
        "create",
        "day",
        "except",
        "fetch",
        "filter",
        "for",
        "from",
        "grant",
        "group",
        "having",
        "hour",
        "intersect",
        "into",
        "isnull",
        "limit",
        "minute",
        "month",
        "notnull",
        "offset",
        "on",
        "order",
        "over",
        "overlaps",
        "precision",
        "returning",
        "second",
        "to",
        "union",
        "varying",
        "where",
        "window",
        "with",
        "within",
        "without",
        "year",
    ]
)
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
NOT_COLUMN = RESERVED | TYPE_FUNC


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


# Words that may follow the alias of an item of FROM.
AFTER_ALIAS = frozenset(
    """
    where group having window order limit offset fetch for union intersect except join cross inner
    left right full natural on using tablesample as set returning when select values qualify
    """.split()
)
