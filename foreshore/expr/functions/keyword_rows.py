"""pg_get_keywords(): the words that identifiers in quotes are told apart from."""

import pyarrow as pa

from foreshore.expr.functions.function import Signature, declare_table, hidden
from foreshore.expr.functions.rows import mapped
from foreshore.postgresql_keywords import CATEGORIES, KEYWORDS
from foreshore.types import BOOL, TEXT, SqlType


def _words(_: Signature) -> pa.Array:
    return pa.array([list(KEYWORDS)], pa.list_(pa.string()))


def _bare(word: str) -> str:
    return "can be bare label" if KEYWORDS[word][1] else "requires AS"


hidden("keyword_code(text)", "text", "char", mapped(lambda word: KEYWORDS[word][0]))
hidden("keyword_is_bare(text)", "text", "bool", mapped(lambda word: KEYWORDS[word][1]))
hidden("keyword_kind(text)", "text", "text", mapped(lambda word: CATEGORIES[KEYWORDS[word][0]]))
hidden("keyword_bare(text)", "text", "text", mapped(_bare))
declare_table(
    "pg_get_keywords",
    "",
    "text[]",
    _words,
    columns="word catcode barelabel catdesc baredesc",
    more=(
        ("keyword_code(text)", SqlType("char")),
        ("keyword_is_bare(text)", BOOL),
        ("keyword_kind(text)", TEXT),
        ("keyword_bare(text)", TEXT),
    ),
)
