"""Write a constant as PostgreSQL's pg_get_expr does: `'tea'::text`, `1.5`, `'-1'::integer`."""

import re

from foreshore.expr.ir import Literal
from foreshore.number_text import INTEGERS
from foreshore.sql.parse.keywords import quote_string
from foreshore.text import format_text
from foreshore.types import without_modifiers, written_type

_NUMBER = re.compile(r"[0-9]++(?:\.[0-9]++)?")
_NUMERIC = frozenset((*INTEGERS, "numeric", "number", "float4", "float8"))
_WORDS = frozenset(
    (
        *("current_user", "session_user", "user", "current_role"),
        *("current_catalog", "current_schema", "localtime", "localtimestamp"),
        *("current_date", "current_time", "current_timestamp"),
    )
)


def constant_text(constant: Literal, written: str) -> str:
    """Return the text of a default that is a constant; `written` is how its author wrote it."""
    assert constant.value is not None, constant
    text, type = format_text(constant.value, constant.type), constant.type
    if type.name == "bool":
        return "true" if constant.value else "false"
    if type.name in _NUMERIC:
        if _NUMBER.fullmatch(written):
            return written
        if _NUMBER.fullmatch(text) and type.name not in ("float4", "float8"):
            return text
        if (negative := _negative(written)) is not None:
            return negative
    return f"{quote_string(text)}::{written_type(without_modifiers(type))}"


def expression_text(written: str) -> str:
    """Return an expression as its author wrote it, with words such as CURRENT_USER in capitals."""
    return _negative(written) or (written.upper() if written.lower() in _WORDS else written)


def _negative(written: str) -> str | None:
    """Return a negative number as PostgreSQL writes it, None for anything else."""
    digits = written[1:].lstrip()
    if not written.startswith("-") or not _NUMBER.fullmatch(digits):
        return None
    if "." in digits:
        return f"'-{digits}'::numeric"
    return f"'-{digits}'::{'integer' if int(digits) <= 2**31 else 'bigint'}"
