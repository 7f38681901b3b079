"""Convert jsonb text to Python values and back, and order documents.

The order is that of PostgreSQL's btree (`compareJsonbContainers`): Object > Array > Boolean >
Number > String > Null; a longer object or array is greater; then elements, or key-value pairs in
stored order (shorter keys first), are compared one by one. The keys of a pair are compared as
strings, so "aa" is less than "b" although it is stored after it.
"""

import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from foreshore.digits import is_digits
from foreshore.json_text import format_json
from foreshore.sorted_numerics import numeric_bytes


def loads(text: str) -> Any:
    """Return a jsonb text as dict, list, str, Decimal, bool or None."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def dumps(value: Any) -> str:
    """Return the jsonb text of a document."""
    return format_json(value)


def stored_keys(document: dict[str, Any]) -> list[str]:
    """Return an object's keys in jsonb's order."""
    return sorted(document, key=lambda k: (len(k.encode()), k.encode()))


@lru_cache(4096)
def json_order_bytes(text: str) -> bytes:
    """Return bytes with the same order and equality as the documents."""
    value = loads(text)
    if isinstance(value, dict):
        return b"\x02" + _bytes(value)
    # A scalar is compared as an array of one element that is less than a real array.
    if isinstance(value, list):
        items = b"".join(map(_bytes, value))
        return b"\x01" + len(value).to_bytes(4, "big") + b"\x01" + items
    return b"\x01" + (1).to_bytes(4, "big") + b"\x00" + _bytes(value)


_WRITTEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|-?[0-9]++(?:\.[0-9]++)?')


def json_key_text(text: str) -> str:
    """Return the jsonb text that equal documents share: numbers without zeros at their ends."""
    return _WRITTEN.sub(_shortest, text) if "." in text or "-0" in text else text


def _shortest(written: re.Match[str]) -> str:
    found = written[0]
    if found[0] == '"' or not ("." in found or found == "-0"):
        return found
    found = found.rstrip("0").rstrip(".") if "." in found else found
    return "0" if found == "-0" else found


def _bytes(value: Any) -> bytes:
    match value:
        case None:
            return b"\x00"
        case str():
            return b"\x01" + _ended(value.encode())
        case bool():
            return b"\x03\x01" if value else b"\x03\x00"
        case Decimal():
            return b"\x02" + numeric_bytes(value)
        case list():
            return b"\x04" + len(value).to_bytes(4, "big") + b"".join(map(_bytes, value))
        case dict():
            parts = [b"\x05", len(value).to_bytes(4, "big")]
            for key in stored_keys(value):
                parts += [_ended(key.encode()), _bytes(value[key])]
            return b"".join(parts)
        case _:
            raise AssertionError(value)


def _ended(data: bytes) -> bytes:
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


MISSING = object()  # what an accessor returns that finds nothing


def as_json(value: Any) -> str | None:
    """Return the text of a value, None for MISSING."""
    return None if value is MISSING else dumps(value)


def kind_of(text: str) -> str:
    """Return the type of a document, as jsonb_typeof does."""
    match loads(text):
        case None:
            return "null"
        case bool():
            return "boolean"
        case Decimal():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def index_of(step: str) -> int | None:
    """Return the index that a step of a path stands for; None if it is no number."""
    stripped = step.strip()
    body = stripped[1:] if stripped[:1] in ("+", "-") else stripped
    if not is_digits(body):
        return None
    if len(body.lstrip("0")) > 10:
        return None
    value = int(stripped[: len(stripped) - len(body)] + (body.lstrip("0") or "0"))
    return value if -(2**31) <= value < 2**31 else None
