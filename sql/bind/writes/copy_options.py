"""Check the options of COPY, in PostgreSQL's order and with its errors."""

from collections.abc import Callable, Collection, Mapping, Sequence

from foreshore.client_encodings import encoding_named
from foreshore.errors import (
    FeatureNotSupported,
    InvalidColumnReference,
    InvalidParameterValue,
    SyntaxError_,
    UndefinedColumn,
)
from foreshore.sql import ast
from foreshore.sql.plan import CopyOptions

_TRUE, _FALSE = ("true", "on", "1"), ("false", "off", "0")


def copy_options(statement: ast.CopyStatement) -> CopyOptions:
    """Return the options of a statement."""
    given = _known(statement.options)
    text = {name: str(value) for name, (value, _) in given.items()}
    format = text.get("format", "text").lower()
    if format not in ("text", "csv", "binary", "arrow"):
        raise InvalidParameterValue(
            f'COPY format "{text["format"]}" not recognized', position=given["format"][1]
        )
    if format == "arrow":
        return _arrow_options(given, is_from=statement.is_from)
    if "exact_numeric" in given:
        raise SyntaxError_(
            "EXACT_NUMERIC is an option of ARROW", position=given["exact_numeric"][1]
        )
    csv = format == "csv"
    if "freeze" in text and text["freeze"].lower() not in _TRUE + _FALSE:
        raise SyntaxError_("freeze requires a Boolean value")
    header = _header(text.get("header", "false"), is_from=statement.is_from)
    forced = {name: _columns(name, *given[name]) for name in _FORCES if name in given}
    encoding = _encoding(given)
    delimiter = text.get("delimiter", "," if csv else "\t")
    null = text.get("null", "" if csv else "\\N")
    quote = text.get("quote", '"')
    escape = text.get("escape", quote)
    _check_characters(format, text, delimiter, null, header=header)
    if csv and delimiter == quote:
        raise InvalidParameterValue("COPY delimiter and quote must be different")
    _check_forces(forced, csv=csv, is_from=statement.is_from)
    if delimiter in null:
        raise FeatureNotSupported("COPY delimiter must not appear in the NULL specification")
    if csv and quote in null:
        raise FeatureNotSupported("CSV quote character must not appear in the NULL specification")
    return CopyOptions(
        "csv" if csv else "binary" if format == "binary" else "text",
        delimiter,
        null,
        header != "false",
        quote,
        escape,
        forced.get("force_quote", ()),
        header == "match",
        forced.get("force_null", ()),
        forced.get("force_not_null", ()),
        encoding,
    )


def _arrow_options(given: Mapping[str, tuple[object, int]], *, is_from: bool) -> CopyOptions:
    """Return the options of the format arrow: EXACT_NUMERIC of COPY TO."""
    for name, (_, position) in given.items():
        if name not in ("format", "freeze", "exact_numeric"):
            raise SyntaxError_(f"cannot specify {name.upper()} in ARROW mode", position=position)
    if "exact_numeric" not in given:
        return CopyOptions("arrow")
    value, position = given["exact_numeric"]
    word = str(value).lower()
    if word not in _TRUE + _FALSE:
        raise SyntaxError_("exact_numeric requires a Boolean value", position=position)
    if is_from:
        raise FeatureNotSupported("cannot use EXACT_NUMERIC in COPY FROM", position=position)
    return CopyOptions("arrow", exact_numeric=word in _TRUE)


def check_forced_columns(
    options: CopyOptions, copied: Collection[str], exists: Callable[[str], bool]
) -> None:
    """Raise an error if an option names a column that is not copied."""
    for option in ("force_quote", "force_not_null", "force_null"):
        names = getattr(options, option)
        for name in () if names == "*" else names:
            if not exists(name):
                raise UndefinedColumn(f'column "{name}" does not exist')
            if name not in copied:
                raise InvalidColumnReference(
                    f'{option.upper()} column "{name}" not referenced by COPY'
                )


_NAMES = frozenset(
    "format freeze delimiter null header quote escape force_quote force_not_null force_null "
    "encoding exact_numeric".split()
)
_FORCES = ("force_quote", "force_not_null", "force_null")


def _known(options: Sequence[ast.CopyOption]) -> Mapping[str, tuple[object, int]]:
    """Return the options by name, each with its value and position."""
    found: dict[str, tuple[object, int]] = {}
    for name, value, at, _ in options:
        if name not in _NAMES:
            raise SyntaxError_(f'option "{name}" not recognized', position=at + 1)
        if name in found:
            raise SyntaxError_("conflicting or redundant options", position=at + 1)
        found[name] = value, at + 1
    return found


def _header(text: str, *, is_from: bool) -> str:
    """Return true, false or match."""
    word = text.lower()
    if word in _TRUE + _FALSE:
        return "true" if word in _TRUE else "false"
    if word != "match":
        raise SyntaxError_('header requires a Boolean value or "match"')
    if not is_from:
        raise FeatureNotSupported('cannot use "match" with HEADER in COPY TO')
    return word


def _columns(option: str, value: object, position: int) -> tuple[str, ...]:
    """Return the columns that an option names; of FORCE_QUOTE also `*`."""
    if value == "*" and option == "force_quote":
        return value  # type: ignore[return-value]
    if not isinstance(value, tuple):
        raise InvalidParameterValue(
            f'argument to option "{option}" must be a list of column names', position=position
        )
    return value


def _encoding(given: Mapping[str, tuple[object, int]]) -> str:
    """Return PostgreSQL's name of the encoding of the data; empty: that of the client."""
    if "encoding" not in given:
        return ""
    name, position = given["encoding"]
    found = encoding_named(str(name))
    if found is None:
        raise InvalidParameterValue(
            'argument to option "encoding" must be a valid encoding name', position=position
        )
    return found


def _check_characters(
    format: str, text: Mapping[str, str], delimiter: str, null: str, *, header: str
) -> None:
    """Check the characters of a format."""
    binary, csv = format == "binary", format == "csv"
    for name in ("delimiter", "null") if binary else ():
        if name in text:
            raise SyntaxError_(f"cannot specify {name.upper()} in BINARY mode")
    if len(delimiter.encode()) != 1:
        raise FeatureNotSupported("COPY delimiter must be a single one-byte character")
    if delimiter in "\r\n":
        raise InvalidParameterValue("COPY delimiter cannot be newline or carriage return")
    if "\r" in null or "\n" in null:
        raise InvalidParameterValue(
            "COPY null representation cannot use newline or carriage return"
        )
    if not csv and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise InvalidParameterValue(f'COPY delimiter cannot be "{delimiter}"')
    if binary and header != "false":
        raise FeatureNotSupported("cannot specify HEADER in BINARY mode")
    for name in ("quote", "escape"):
        if name in text and not csv:
            raise FeatureNotSupported(f"COPY {name} available only in CSV mode")
        if name in text and len(text[name].encode()) != 1:
            raise FeatureNotSupported(f"COPY {name} must be a single one-byte character")


def _check_forces(forced: Collection[str], *, csv: bool, is_from: bool) -> None:
    for name in _FORCES:
        if name not in forced:
            continue
        words = name.replace("_", " ")
        if not csv:
            raise FeatureNotSupported(f"COPY {words} available only in CSV mode")
        if is_from == (name == "force_quote"):
            way = "TO" if is_from else "FROM"
            raise FeatureNotSupported(f"COPY {words} only available using COPY {way}")
