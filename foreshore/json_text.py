"""JSON as jsonb stores it: PostgreSQL's output form, which also defines equality.

Keys are unique and sorted by length, then bytes. The last of equal keys wins. Numbers are numerics,
so `1.50` keeps its zero and `1e2` is `100`. Strings are unescaped and escaped again.
"""

import json
import re
from decimal import MAX_PREC, Context, Decimal
from typing import Any

from foreshore.errors import DataError, InvalidTextRepresentation, StatementTooComplex

_EXACT = Context(prec=MAX_PREC)
_MAX_EXPONENT = 100_000  # larger exponents overflow PostgreSQL's numeric, or nearly so
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_EXPECTED = {
    "Expecting value": "Expected JSON value",
    "Expecting ':' delimiter": 'Expected ":"',
    "Expecting ',' delimiter": 'Expected "," or end of container',
    "Expecting property name enclosed in double quotes": "Expected string",
    "Illegal trailing comma before end of object": "Expected string",
    "Illegal trailing comma before end of array": "Expected JSON value",
    "Extra data": "Expected end of input",
}


class _Number(str):
    """The canonical text of a number, as distinct from a string."""


def canonical_json(text: str) -> str:
    """Return the jsonb output form of the document `text`.

    Raises InvalidTextRepresentation `invalid input syntax for type json`.
    """
    try:
        value = json.loads(
            text,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_refuse,
        )
        return format_json(value)
    except json.JSONDecodeError as error:
        raise _invalid(text, error) from None
    except RecursionError:
        raise StatementTooComplex(
            "stack depth limit exceeded", hint="The document is nested too deeply."
        ) from None


def _refuse(word: str) -> Any:
    raise InvalidTextRepresentation(
        "invalid input syntax for type json", detail=f'Token "{word.lstrip("-")}" is invalid.'
    )


def _invalid(text: str, error: json.JSONDecodeError) -> DataError:
    rest = text[error.pos :].lstrip(" \t\r\n")
    if error.msg.startswith("Invalid control character"):
        detail = f"Character with value 0x{ord(text[error.pos]):02x} must be escaped."
    elif not rest:
        detail = "The input string ended unexpectedly."
    elif error.msg.startswith(("Invalid \\", "Unterminated")):
        detail = f'Token "{rest}" is invalid.'
    else:
        token = re.match(r'\w+|"(?:[^"\\]|\\.)*"|.', rest, re.DOTALL)
        word = token[0] if token is not None else rest
        known = word[0] in '{}[],:"-0123456789' or word in ("true", "false", "null")
        expected = _EXPECTED.get(error.msg) if known else None
        detail = f'{expected}, but found "{word}".' if expected else f'Token "{word}" is invalid.'
    return InvalidTextRepresentation("invalid input syntax for type json", detail=detail)


def _number(text: str) -> _Number:
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent[:12])) > _MAX_EXPONENT:
        raise DataError("value overflows numeric format", sqlstate="22003")
    if not exponent:
        return _Number(mantissa.lstrip("-") if _is_zero(mantissa) else mantissa)
    value = _EXACT.create_decimal(text)
    shown = format(value, "f")
    return _Number(shown.lstrip("-") if _is_zero(shown) else shown)


def _is_zero(digits: str) -> bool:
    return not digits.strip("-0.")


def quote_json(text: str) -> str:
    """Return `text` as a JSON string, escaped as PostgreSQL does."""
    return '"' + _ESCAPED.sub(lambda m: _SHORT.get(m[0]) or f"\\u{ord(m[0]):04x}", text) + '"'


def _check_string(text: str) -> str:
    if "\x00" in text:
        raise DataError(
            "unsupported Unicode escape sequence",
            sqlstate="22P05",
            detail="\\u0000 cannot be converted to text.",
        )
    if _SURROGATE.search(text):
        raise InvalidTextRepresentation(
            "invalid input syntax for type json",
            detail="Unicode high surrogate must not follow a high surrogate."
            if re.search("[\ud800-\udbff]{2}", text)
            else "Unicode low surrogate must follow a high surrogate.",
        )
    return text


def format_json(value: Any) -> str:
    """Return the output form of a document given as Python values."""
    match value:
        case None:
            return "null"
        case True:
            return "true"
        case False:
            return "false"
        case _Number():
            return str(value)
        case str():
            return quote_json(_check_string(value))
        case dict():
            pairs = sorted(
                ((_check_string(key).encode(), item) for key, item in value.items()),
                key=lambda pair: (len(pair[0]), pair[0]),
            )
            inner = (f"{quote_json(key.decode())}: {format_json(item)}" for key, item in pairs)
            return "{" + ", ".join(inner) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(format_json, value)) + "]"
        case int():
            return str(value)
        case Decimal():
            return _number(format(value, "f"))
        case _:
            raise TypeError(f"no JSON value: {value!r}")
