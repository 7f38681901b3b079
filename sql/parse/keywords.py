"""PostgreSQL's key words by the places where they may be used as names.

    RESERVED     only as a label after AS
    TYPE_FUNC    as the name of a type or function, but not of a column or table
    COL_NAME     as the name of a column or table, but not of a function or type that is called
    NEEDS_AS     as a column label only after AS

All other words are free in PostgreSQL; our parser does not accept all of them (MISPARSED).
"""

RESERVED = frozenset(
    [
        "all",
        "analyse",
        "analyze",
        "and",
        "any",
        "array",
        "as",
        "asc",
        "asymmetric",
        "both",
        "case",
        "cast",
        "check",
        "collate",
        "column",
        "constraint",
        "create",
        "current_catalog",
        "current_date",
        "current_role",
        "current_time",
        "current_timestamp",
        "current_user",
        "default",
        "deferrable",
        "desc",
        "distinct",
        "do",
        "else",
        "end",
        "except",
        "false",
        "fetch",
        "for",
        "foreign",
        "from",
        "grant",
        "group",
        "having",
        "in",
        "initially",
        "intersect",
        "into",
        "lateral",
        "leading",
        "limit",
        "localtime",
        "localtimestamp",
        "not",
        "null",
        "offset",
        "on",
        "only",
        "or",
        "order",
        "placing",
        "primary",
        "references",
        "returning",
        "select",
        "session_user",
        "some",
        "symmetric",
        "table",
        "then",
        "to",
        "trailing",
        "true",
        "union",
        "unique",
        "user",
        "using",
        "variadic",
        "when",
        "where",
        "window",
        "with",
    ]
)
TYPE_FUNC = frozenset(
    [
        "authorization",
        "binary",
        "collation",
        "concurrently",
        "cross",
        "current_schema",
        "freeze",
        "full",
        "ilike",
        "inner",
        "is",
        "isnull",
        "join",
        "left",
        "like",
        "natural",
        "notnull",
        "outer",
        "overlaps",
        "right",
        "similar",
        "tablesample",
        "verbose",
    ]
)
COL_NAME = frozenset(
    [
        "between",
        "bigint",
        "bit",
        "boolean",
        "char",
        "character",
        "coalesce",
        "dec",
        "decimal",
        "exists",
        "extract",
        "float",
        "greatest",
        "grouping",
        "inout",
        "int",
        "integer",
        "interval",
        "least",
        "national",
        "nchar",
        "none",
        "normalize",
        "nullif",
        "numeric",
        "out",
        "overlay",
        "position",
        "precision",
        "real",
        "row",
        "setof",
        "smallint",
        "substring",
        "time",
        "timestamp",
        "treat",
        "trim",
        "values",
        "varchar",
    ]
)
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
        "lock",
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
NOT_FUNCTION = RESERVED | COL_NAME


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
