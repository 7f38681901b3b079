"""Options of sources: `WORDS [=] value`, each known to its kind of source, and given once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from foreshore.digits import is_digits
from foreshore.errors import InvalidParameterValue, SyntaxError_
from foreshore.interval_text import parse_interval
from foreshore.sql import ast
from foreshore.sql.bind.planning import located

OptionValue: TypeAlias = str | tuple[str, ...] | None
Parse: TypeAlias = Callable[[str, OptionValue], Any]  # of a name and its value
LEAST_INTERVAL_MS = 1


def parsed_options(
    what: str, options: Sequence[ast.SourceOption], known: Mapping[str, tuple[str, Parse]]
) -> dict[str, Any]:
    """Return the fields that options of `what` set; `known` has each option's field and parser.

    Raises if an option is unknown, repeated or of a wrong value.
    """
    found: dict[str, Any] = {}
    for option in options:
        if option.name not in known:
            there_are = ", ".join(each.upper() for each in known)
            raise SyntaxError_(
                f'unknown option "{option.name}" of {what}',
                hint=f"There are {there_are}." if known else None,
                position=option.at + 1,
            )
        field, parse = known[option.name]
        if field in found:
            raise SyntaxError_(f'option "{option.name}" is given twice', position=option.at + 1)
        with located(option.at):
            found[field] = parse(option.name, option.value)
    return found


def text(name: str, value: OptionValue) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidParameterValue(f'option "{name}" must be a text')
    return value


def names(name: str, value: OptionValue) -> tuple[str, ...]:
    """Return a list of names."""
    if not isinstance(value, tuple):
        raise InvalidParameterValue(f'option "{name}" must be a list of names in parentheses')
    return value


def milliseconds(name: str, value: OptionValue) -> int:
    """Return the milliseconds of an interval without months."""
    months, days, micros = parse_interval(value) if isinstance(value, str) else (0, 0, 0)
    found = days * 86_400_000 + micros // 1000
    if months or found < LEAST_INTERVAL_MS:
        raise InvalidParameterValue(
            f'option "{name}" must be an interval of at least 1 millisecond, without months'
        )
    return found


def truth(name: str, value: OptionValue) -> bool:
    """Return whether an option is true, which it is without a value."""
    if value is None or value in ("true", "on", "1"):
        return True
    if value not in ("false", "off", "0"):
        raise InvalidParameterValue(f'option "{name}" must be true or false')
    return False


def count(name: str, value: OptionValue) -> int:
    """Return a number that is not negative."""
    is_number = isinstance(value, str) and is_digits(value)
    if not is_number or len(value or "") > 18:
        raise InvalidParameterValue(f'option "{name}" must be a number that is not negative')
    return int(str(value))


def flag(name: str, value: OptionValue) -> bool:
    """Return a Boolean value; an option without a value is true."""
    word = "true" if value is None else value
    if not isinstance(word, str) or word.lower() not in ("true", "on", "false", "off"):
        raise InvalidParameterValue(f'option "{name}" requires a Boolean value')
    return word.lower() in ("true", "on")


def is_apply(name: str, value: OptionValue) -> bool:
    """Return whether changes of columns in the external system are applied here."""
    word = value.lower() if isinstance(value, str) else None
    if word not in ("apply", "ignore"):
        raise InvalidParameterValue(f'option "{name}" must be APPLY or IGNORE')
    return word == "apply"
