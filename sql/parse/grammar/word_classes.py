"""Which key words are no names: of columns, of labels without AS, of aliases."""

from foreshore.keywords import RESERVED, TYPE_FUNC

NOT_COLUMN = RESERVED | TYPE_FUNC
# May be a column label only after AS.
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
# Words that may follow the alias of an item of FROM.
AFTER_ALIAS = frozenset(
    """
    where group having window order limit offset fetch for union intersect except join cross inner
    left right full natural on using tablesample as set returning when select values qualify
    """.split()
)
