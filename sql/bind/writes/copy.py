"""Bind COPY: its columns and the options of its format."""

from typing import Any

from msgspec.structs import replace as with_fields

from foreshore.errors import (
    FeatureNotSupported,
    InvalidColumnReference,
    InvalidParameterValue,
    SyntaxError_,
)
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.writes.target import default_of, is_stored, positions_of, target_table
from foreshore.sql.plan import CopyFrom, CopyOptions
from foreshore.sql.planning import Planning, located


def bind_copy_from(planning: Planning, statement: ast.CopyStatement) -> CopyFrom:
    """Return the plan of COPY ... FROM STDIN."""
    assert isinstance(statement.source, ast.TableRef)
    item = target_table(planning, statement.source, "insert")
    columns = copied_columns(item, statement)
    defaults = tuple(default_of(planning, item, i) for i in range(len(item.desc.names)))
    return CopyFrom(item.id, columns, defaults, copy_options(statement))


def copied_columns(item: ItemView, statement: ast.CopyStatement) -> tuple[int, ...]:
    """Return the positions of the columns to copy; those computed from others are not."""
    if statement.columns is None:
        return tuple(i for i in range(len(item.desc.names)) if not is_stored(item, i))
    found = positions_of(item, statement.columns)
    for place, (name, at) in zip(found, statement.columns, strict=True):
        if is_stored(item, place):
            raise InvalidColumnReference(
                f'column "{name}" is a generated column',
                detail="Generated columns cannot be used in COPY.",
                position=at + 1,
            )
    return found


def columns_to_copy(
    planning: Planning, tree: ast.CopyStatement, source: ast.TableRef
) -> tuple[tuple[str, int], ...]:
    """Return the columns of COPY table TO: all but those computed from others."""
    with located(source.at):
        item = planning.catalog.resolve_item(source.name)
    if "stored" not in item.generated:
        return (("*", source.at),)
    tree = with_fields(tree, columns=None)
    return tuple((item.desc.names[i], source.at) for i in copied_columns(item, tree))


def copy_options(statement: ast.CopyStatement) -> CopyOptions:
    """Return the options of COPY, checked as PostgreSQL checks them."""
    given: dict[str, Any] = dict(statement.options)
    at = statement.at + 1
    format = str(given.pop("format", "text")).lower()
    if format not in ("text", "csv", "binary"):
        raise InvalidParameterValue(f'COPY format "{format}" not recognized', position=at)
    csv = format == "csv"
    delimiter = given.pop("delimiter", "," if csv else "\t")
    null = given.pop("null", "" if csv else "\\N")
    header = str(given.pop("header", "false")).lower()
    quote = given.pop("quote", '"')
    escape = given.pop("escape", quote)
    force_quote = given.pop("force_quote", ())
    encoding = str(given.pop("encoding", "utf8")).lower().replace("-", "")
    freeze = str(given.pop("freeze", "false")).lower()
    for name in ("force_null", "force_not_null"):
        if name in given:
            raise FeatureNotSupported(f"COPY {name.upper()} is not supported", position=at)
    if given:
        raise SyntaxError_(f'option "{next(iter(given))}" not recognized', position=at)
    if encoding not in ("utf8", "unicode", "sql_ascii"):
        raise FeatureNotSupported(f'encoding "{encoding}" is not supported', position=at)
    if freeze not in ("true", "false", "on", "off", "1", "0"):
        raise SyntaxError_("freeze requires a Boolean value", position=at)
    if header not in ("true", "false", "on", "off", "1", "0"):
        raise FeatureNotSupported(f"COPY HEADER {header.upper()} is not supported", position=at)
    if format == "binary" and {"delimiter", "null"} & statement.options.keys():
        raise SyntaxError_("cannot specify DELIMITER or NULL in BINARY mode", position=at)
    if len(delimiter.encode()) != 1:
        raise FeatureNotSupported("COPY delimiter must be a single one-byte character", position=at)
    if not csv and {"quote", "escape", "force_quote"} & statement.options.keys():
        word = next(w for w in ("quote", "escape", "force_quote") if w in statement.options)
        raise FeatureNotSupported(
            f"COPY {word.replace('_', ' ')} available only in CSV mode", position=at
        )
    if csv and (len(quote) != 1 or len(escape) != 1 or quote == delimiter):
        raise InvalidParameterValue(
            "COPY quote and escape must be single characters other than the delimiter", position=at
        )
    return CopyOptions(
        "csv" if csv else "binary" if format == "binary" else "text",
        delimiter,
        null,
        header in ("true", "on", "1"),
        quote,
        escape,
        "*" if force_quote == "*" else tuple(force_quote),
    )
