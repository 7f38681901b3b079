r"""JSON of values, by column.

bool, integers          true, 42
float4, float8          1.5, but "NaN", "Infinity" and "-Infinity"
numeric                 "1.50": a text, as many readers take numbers for doubles
json, jsonb             the document itself
timestamp, timestamptz  "2024-01-31T12:00:00.5", "2024-01-31T12:00:00.5+00:00"
arrays                  [1,null,2]
records, lists, maps    as to_json writes them
others                  their text in PostgreSQL's form, "\\x00ff" of bytea for instance
"""

from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.json_text import quote_json
from foreshore.output_style import OutputStyle
from foreshore.text_columns import list_offsets, text_column
from foreshore.types import STRUCTURED, SqlType

Texts: TypeAlias = pa.Array  # of strings
_STYLE = OutputStyle()
_AS_THEY_ARE = frozenset({"int2", "int4", "int8", "oid", "uint2", "uint4", "mz_timestamp", "jsonb"})
_MUST_ESCAPE = r'["\\\x00-\x1f]'
_join = partial(pc.binary_join_element_wise, null_handling="emit_null")


def json_column(column: pa.Array, type: SqlType) -> Texts:
    """Return the JSON of each value; NULL of NULL."""
    if type.element is not None:
        return _arrays(column, type.element)
    if type.name in STRUCTURED:
        from foreshore.expr.functions.jsonwritten import written

        return pa.array(written(column, type), pa.string())
    texts = text_column(column, type, _STYLE)
    match type.name:
        case "json" | "uint8":
            return texts
        case name if name in _AS_THEY_ARE:
            return texts
        case "bool":
            return pc.if_else(column, "true", "false")
        case "float4" | "float8":
            return pc.if_else(pc.is_finite(column), texts, _quoted(texts))
        case "timestamp" | "timestamptz":
            return _quoted(_iso(texts, has_zone=type.name == "timestamptz"))
        case "numeric" | "number" | "date" | "time" | "uuid" | "bytea" | "interval":
            return _join('"', pc.replace_substring(texts, "\\", "\\\\"), '"', "")
    return _strings(texts)


def objects(names: tuple[str, ...], columns: list[Texts]) -> Texts:
    """Return an object for each row; the columns are JSON, and NULL is null."""
    pieces: list[pa.Array | str] = []
    before = "{"
    for name, column in zip(names, columns, strict=True):
        pieces += [f"{before}{quote_json(name)}:", pc.fill_null(column, "null")]
        before = ","
    return _join(*pieces, "}", "")


def _quoted(texts: Texts) -> Texts:
    """Return texts in which nothing needs escaping as strings."""
    return _join('"', texts, '"', "")


def _strings(texts: Texts) -> Texts:
    """Return texts as strings; those that need it are escaped."""
    quoted = _quoted(texts)
    wrong = pc.fill_null(pc.match_substring_regex(texts, _MUST_ESCAPE), False)
    if not pc.any(wrong).as_py():
        return quoted
    escaped = pa.array([quote_json(each.as_py()) for each in texts.filter(wrong)], pa.string())
    return pc.replace_with_mask(quoted, wrong, escaped)


def _iso(texts: Texts, *, has_zone: bool) -> Texts:
    """Return timestamps in the form of ISO 8601."""
    texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return pc.replace_substring_regex(texts, r"\+00( BC)?$", r"+00:00\1") if has_zone else texts


def _arrays(column: pa.Array, element: SqlType) -> Texts:
    items = pc.fill_null(json_column(column.flatten(), element), "null")
    lists = pa.ListArray.from_arrays(pa.array(list_offsets(column)), items)
    texts = _join("[", pc.binary_join(lists, ","), "]", "")
    return texts if column.null_count == 0 else pc.if_else(column.is_valid(), texts, None)
