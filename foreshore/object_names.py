"""Arguments of `reg*` types, which may be the names of objects."""

from foreshore.digits import is_digits
from foreshore.text import parse_text
from foreshore.types import REG_NAMES, TEXT, Datum, SqlType, array_of

_TEXTS = array_of(TEXT)


def takes_names(type: SqlType) -> bool:
    """Return whether values of a type may be written as names of objects."""
    return (type.element or type).name in REG_NAMES


def parse_argument(text: str, type: SqlType, *, zone: str) -> Datum:
    """Return the value of an argument in text; names of objects stay texts.

    Raises DataError for other input that is not of the type.
    """
    if not takes_names(type):
        return parse_text(text, type, zone=zone)
    if type.element is None:
        return text if _is_name(text) else parse_text(text, type, zone=zone)
    elements = parse_text(text, _TEXTS, zone=zone)
    assert isinstance(elements, tuple)
    is_named = any(isinstance(each, str) and _is_name(each) for each in elements)
    return elements if is_named else parse_text(text, type, zone=zone)


def has_name(value: Datum, type: SqlType) -> bool:
    """Return whether an argument holds a name, and not only oids."""
    if not takes_names(type):
        return False
    return isinstance(value, str) or (
        isinstance(value, tuple) and any(isinstance(each, str) for each in value)
    )


def _is_name(text: str) -> bool:
    return text != "-" and not is_digits(text.strip().lstrip("+-"))
