"""Parameters of a statement as literals in its text.

    with_parameters("SELECT $1 + 1", [41])           is   SELECT (41) + 1
    with_parameters("SELECT $x + 1", {"x": 41})      is the same

COPY takes no parameters on the wire, as in PostgreSQL, and results come by COPY. A literal has the
type that its Python value says; a text has none of its own, as a parameter, and takes the one that
its place in the statement asks for. `$1` within texts, quoted names and comments is left alone.
"""

import datetime
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from foreshore.errors import DatabaseError, SyntaxError_, UserError

_COMMENT = r"/\*(?:[^*/]|\*(?!/)|/(?!\*){inner})*+\*/"
_NESTED = ""
for _ in range(8):  # how deep comments may nest
    _NESTED = f"|{_COMMENT.format(inner=_NESTED)}"

_TOKENS = re.compile(
    r"""
      [eE]'(?:[^'\\]|\\.|'')*+'          # a text with escapes
    | '(?:[^']|'')*+'                    # a text
    | "(?:[^"]|"")*+"                    # a name
    | \$(?P<tag>[A-Za-z_]\w*+)?\$.*?\$(?P=tag)\$
    | \$\$.*?\$\$                        # texts between dollars
    | --[^\n]*+                          # a comment
    """
    + _NESTED
    + r"""
    | (?P<word>[A-Za-z_][\w$]*+)         # which may have a dollar
    | (?P<parenthesis>[()])
    | (?P<semicolon>;)
    | \$(?P<number>\d++)
    | \$(?P<key>[A-Za-z_]\w*+)
    """,
    re.VERBOSE | re.DOTALL,
)


# Nothing but white space, comments and semicolons.
_EMPTY = re.compile(rf"(?:\s|;|--[^\n]*+{_NESTED})*+\Z")

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

_MISSING = frozenset(("NAType", "NaTType"))  # of pandas
_DATES = ("datetime64[D", "datetime64[W", "datetime64[M", "datetime64[Y")  # of NumPy


class UndefinedParameter(UserError):
    """A parameter of the statement was not given."""

    sqlstate = "42P02"


def with_parameters(text: str, values: Parameters) -> str:
    """Return a statement with its parameters in place; raises UndefinedParameter.

    Values by name stand for `$name`. Raises TypeError if `values` is a single value.
    """
    check_text(text)
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | Mapping):
        raise TypeError(
            f"params is a list of values, or a dict by names, and not {type(values).__name__}"
        )
    if not values:
        return text
    given: Mapping[str, Any] = (
        values
        if isinstance(values, Mapping)
        else {str(number): value for number, value in enumerate(values, 1)}
    )
    used: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        name = match["number"] or match["key"]
        if name is None:
            return match[0]
        if name not in given:
            raise UndefinedParameter(f"there is no parameter ${name}")
        used.add(name)
        return literal(given[name])

    found = _TOKENS.sub(replaced, text)
    if len(used) < len(given):
        raise UndefinedParameter(
            f"the statement uses {len(used)} of {len(given)} parameters",
            hint="Parameters are written $1, $2, and so on, or $name with a dict.",
        )
    return found


def is_empty(text: str) -> bool:
    """Whether a text has no statement."""
    return _EMPTY.match(text) is not None


def check_text(text: str) -> None:
    """Raise DatabaseError (22021) for a text that the wire cannot carry."""
    if not isinstance(text, str):
        raise TypeError(f"a statement is a str, and not {type(text).__name__}")
    if "\0" in text:
        raise DatabaseError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        wrong = text[error.start].encode(errors="surrogatepass")
        shown = " ".join(f"0x{byte:02x}" for byte in wrong)
        raise DatabaseError(
            f'invalid byte sequence for encoding "UTF8": {shown}', sqlstate="22021"
        ) from None


def words_and_signs(text: str) -> Iterator[str]:
    """Yield words, parentheses and semicolons, not those in texts, names and comments."""
    for match in _TOKENS.finditer(text):
        if (found := match["word"] or match["parenthesis"] or match["semicolon"]) is not None:
            yield found


def without_end(text: str) -> str:
    """Return a statement without the semicolon that ends it, and without what follows that.

    The text is left alone if more than comments follow.
    """
    end = None
    for match in _TOKENS.finditer(text):
        if end is None and match["semicolon"]:
            end = match.start()
        elif end is not None and not (match["semicolon"] or match[0].startswith(("--", "/*"))):
            return text
    rest = "" if end is None else _TOKENS.sub("", text[end:])
    return text if end is None or rest.strip() else text[:end]


def only_statement(text: str) -> str:
    """Return a statement without its end; raises SyntaxError_ if there is another one."""
    found = without_end(text)
    if any(match["semicolon"] for match in _TOKENS.finditer(found)):
        raise SyntaxError_(
            "cannot run several statements and return rows",
            hint="execute runs several, such as those of a file.",
        )
    return found


def literal(value: Any) -> str:
    """Return a value as a literal of SQL; raises DatabaseError for one of an unknown type."""
    if type(value).__name__ in _MISSING:
        return "NULL"
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return f"({value})"
        case float():
            return f"'{float(value)!r}'::double precision"  # NumPy's have a form of their own
        case Decimal():
            return f"'{'NaN' if value.is_nan() else value}'::numeric"
        case str():
            return text_literal(value)
        case bytes() | bytearray() | memoryview():
            return f"'\\x{bytes(value).hex()}'::bytea"
        case datetime.datetime():
            zone = "timestamp" if value.tzinfo is None else "timestamptz"
            return f"'{value.isoformat()}'::{zone}"
        case datetime.date():
            return f"'{value.isoformat()}'::date"
        case datetime.time():
            return f"'{value.isoformat()}'::time"
        case datetime.timedelta():
            seconds = value.seconds + Decimal(value.microseconds) / 1_000_000
            return f"'{value.days} days {seconds} seconds'::interval"
        case uuid.UUID():
            return f"'{value}'::uuid"
        case Mapping():
            return f"{text_literal(_json(value))}::jsonb"
        case list() | tuple():
            return f"ARRAY[{', '.join(map(literal, value))}]" if value else "'{}'"
    if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m"):
        value = _of_python(value)
    if hasattr(value, "item") and not getattr(value, "shape", ()):  # a scalar of NumPy
        return literal(value.item())
    for method in ("tolist", "to_pylist", "to_list", "as_py"):  # of NumPy, pandas, Arrow, polars
        if hasattr(value, method):
            return literal(getattr(value, method)())
    raise DatabaseError(
        f"a parameter of type {type(value).__name__} is not supported",
        sqlstate="0A000",
        hint="Pass its text, and cast it in the statement.",
    )


def _of_python(times: Any) -> Any:
    """Return times of NumPy in a unit that Python's have: others would become integers."""
    unit = str(times.dtype)
    if type(times).__module__ != "numpy" or unit.startswith(_DATES):
        return times  # those of pandas become Timestamps
    return times.astype(f"{unit.partition('[')[0]}[us]")


def _json(value: Any) -> str:
    """Return a value as JSON: dates, times and UUIDs as text, a Decimal with all its digits."""
    try:
        return _json_of(value)
    except (ValueError, RecursionError):
        raise DatabaseError(
            "a dict that contains itself, or is nested too deeply, is no JSON", sqlstate="22023"
        ) from None


def _json_of(value: Any) -> str:
    match value:
        case Mapping():
            pairs = (f"{_json_key(key)}: {_json_of(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_json_of, value))}]"
        case Decimal() if value.is_finite():
            return format(value, "f")
        case Decimal():
            return json.dumps(float(value))  # which the server refuses, as it does of a float
        case datetime.date() | datetime.time() if type(value).__name__ not in _MISSING:
            return json.dumps(value.isoformat())
        case uuid.UUID():
            return json.dumps(str(value))
    if type(value).__name__ in _MISSING:
        return "null"
    if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m"):
        value = _of_python(value)
    if not isinstance(value, float | int | str | None) and hasattr(value, "tolist"):
        return _json_of(value.tolist())  # of NumPy and pandas
    return json.dumps(value, default=_refuse_in_json)


def _json_key(key: Any) -> str:
    """Return the name of a member; numbers, truth values and None are named as JSON has them."""
    if isinstance(key, bool | int | float | str | None):
        return json.dumps(key if isinstance(key, str) else json.dumps(key))
    if isinstance(key, datetime.date | datetime.time | uuid.UUID | Decimal):
        return json.dumps(str(key))
    _refuse_in_json(key)


def _refuse_in_json(value: Any) -> NoReturn:
    raise DatabaseError(
        f"a parameter of type {type(value).__name__} within a dict is not supported",
        sqlstate="0A000",
        hint="Pass its text.",
    )


def text_literal(value: str) -> str:
    """Return a text as a literal, whatever the session says of backslashes."""
    check_text(value)
    quoted = value.replace("'", "''")
    if "\\" not in quoted:
        return f"'{quoted}'"
    escaped = quoted.replace("\\", "\\\\")
    return f" E'{escaped}'"


def quoted_name(name: str) -> str:
    """Return a name, in quotes."""
    check_text(name)
    return '"' + name.replace('"', '""') + '"'


def qualified_name(name: str) -> str:
    """Return the name of a relation, each part in quotes: `schema.table` has two."""
    check_text(name)
    return ".".join(quoted_name(part) for part in name.split("."))
