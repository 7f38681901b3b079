"""Resolve type names: aliases, modifiers, arrays, types of the catalog."""

import re

from foreshore.bits import MOST_BITS
from foreshore.domain import Domain
from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    SyntaxError_,
    UndefinedObject,
    UndefinedTable,
)
from foreshore.ids import GlobalId
from foreshore.sql.ast import TypeName
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.rewrite.text_edits import Edit
from foreshore.types import (
    BIT_TYPES,
    CONTAINERS,
    NUMBER,
    NUMERIC,
    TEXT,
    TYPES,
    SqlType,
    array_of,
    list_of,
    map_of,
    numeric,
    record_of,
    shaped_array,
    written_type,
)

_ALIASES = {"decimal": "numeric", "string": "text", "bytes": "bytea"}
_DIGITS = frozenset({"time", "timetz", "timestamp", "timestamptz", "interval"})
_UNSUPPORTED_TYPES = frozenset(
    [
        "box",
        "circle",
        "cstring",
        "line",
        "lseg",
        "macaddr8",
        "path",
        "pg_lsn",
        "point",
        "polygon",
        "tsquery",
        "tsvector",
        "txid_snapshot",
        "xml",
        "tid",
    ]
)


# A name as it is written, with its qualifiers.
_WRITTEN = re.compile(r'(?:"(?:[^"]|"")*"|[\w$]+)(?:\s*\.\s*(?:"(?:[^"]|"")*"|[\w$]+))*')


def type_of_name(name: TypeName, planning: Planning | None) -> SqlType:
    """Return the type that `name` denotes; a type of the catalog becomes a dependency.

    Without `planning`, only the system's types are found.
    """
    if name.item is not None:
        return _container(name, name.item, planning)
    *schema, word = name.name
    if schema and schema not in (["pg_catalog"], ["mz_catalog"]):
        return _type_of_catalog(name, planning)
    if word.startswith("_") and word[1:] in TYPES and word != "_number":
        planned = planning is not None and not planning.keeps_digits
        of_numerics = NUMERIC if planned else NUMBER
        return array_of(of_numerics if word == "_numeric" else SqlType(word[1:]))
    word = _ALIASES.get(word, word)
    if word in _UNSUPPORTED_TYPES:
        raise FeatureNotSupported(f"type {word} is not supported", position=name.at + 1)
    if word in CONTAINERS and (schema or planning is None):
        raise FeatureNotSupported(
            f"cannot reference pseudo type mz_catalog.{word}", position=name.at + 1
        )
    if word not in TYPES or word in ("array", "unknown", "enum", "number", *CONTAINERS):
        return _type_of_catalog(name, planning)
    type = _modified(word, name.modifiers, name.at)
    if type == NUMBER and planning is not None and not planning.keeps_digits:
        type = NUMERIC
    if name.fields is not None:
        type = SqlType(type.name, type.length, fields=name.fields)
    return _with_dimensions(type, name.dimensions)


def _with_dimensions(type: SqlType, dimensions: int) -> SqlType:
    """Return the type of arrays of `type`; those declared with several brackets have any shape."""
    if dimensions > 1:
        return shaped_array(type)
    return array_of(type) if dimensions else type


def _container(name: TypeName, item: TypeName, planning: Planning | None) -> SqlType:
    """Return the type of a list or map of `item`."""
    if name.key is not None:
        key = type_of_name(name.key, planning)
        if key != TEXT:
            raise FeatureNotSupported(
                f"map key type must be text, got {key}", position=name.key.at + 1
            )
    inner = type_of_name(item, planning)
    type = list_of(inner) if name.key is None else map_of(inner)
    return _with_dimensions(type, name.dimensions)


def domain_of_name(name: TypeName, planning: Planning) -> Domain | None:
    """Return the domain that `name` denotes, None for any other type; a dependency like a type."""
    *schema, word = name.name
    of_system = word in TYPES and word != "number"
    if (not schema and of_system) or schema in (["pg_catalog"], ["mz_catalog"]):
        return None
    with located(name.at):
        found = planning.catalog.domain_named(name.name)
    return None if found is None else found[1]


def _type_of_catalog(name: TypeName, planning: Planning | None) -> SqlType:
    *schema, word = name.name
    found, is_array = None, False
    if planning is not None:
        with located(name.at):
            domain = planning.catalog.domain_named(name.name)
            if domain is not None:
                return _base_of(name, planning, *domain)
            found = planning.catalog.type_named(name.name)
            if found is None and word.startswith("_"):
                found, is_array = planning.catalog.type_named((*schema, word[1:])), True
            if found is None:
                row, is_array = _row_of_relation(name, planning)
                if row is not None:
                    return array_of(row) if name.dimensions or is_array else row
    if planning is None or found is None:
        raise UndefinedObject(f'type "{".".join(name.name)}" does not exist', position=name.at + 1)
    id, type = found
    if name.modifiers:
        raise SyntaxError_(f'type modifier is not allowed for type "{word}"', position=name.at + 1)
    planning.depends_on.add(id)
    if not is_array:
        _qualify(planning, name, written_type(type))
    return array_of(type) if name.dimensions or is_array else type


def _row_of_relation(name: TypeName, planning: Planning) -> tuple[SqlType | None, bool]:
    """Return the type of a relation's rows, and whether the name is that of their arrays.

    It is an anonymous record with the columns of now, so no definition keeps it.
    """
    *schema, word = name.name
    for written, is_array in ((word, False), *(((word[1:], True),) if word[:1] == "_" else ())):
        try:
            view = planning.catalog.resolve_item((*schema, written))
        except UndefinedTable:
            continue
        if view.kind in ("index", "subscription"):
            continue
        if planning.in_view or planning.maintained:
            raise FeatureNotSupported(
                f"the row type of {view.kind} {view.name.item} is not supported in definitions",
                hint="Use CREATE TYPE to create a composite type with these columns.",
                position=name.at + 1,
            )
        return record_of(view.desc.names, [column.type for column in view.desc.columns]), is_array
    return None, False


def _base_of(name: TypeName, planning: Planning, id: GlobalId, domain: Domain) -> SqlType:
    if name.dimensions:
        raise FeatureNotSupported(
            f"an array of domain {domain.name} is not supported", position=name.at + 1
        )
    planning.depends_on.add(id)
    _qualify(planning, name, ".".join(map(quote_identifier, domain.parts)))
    return domain.base


def _qualify(planning: Planning, name: TypeName, full: str) -> None:
    """Record that the name of a type is qualified in the kept text."""
    qualify_at(planning, name.at, name.name, full)


def qualify_at(planning: Planning, at: int, name: tuple[str, ...], full: str) -> None:
    """Record that the name of a type or function at an offset is qualified in the kept text."""
    written = _WRITTEN.match(planning.text, at)
    if written is not None and len(name) < 3:
        planning.qualified.append((at, written.end(), full))


def qualified_types(planning: Planning, text: str, text_at: int) -> list[Edit]:
    """Return edits that give `text`, at `text_at` of the statement, full names of its types."""
    end = text_at + len(text)
    return [
        (start - text_at, until - text_at, what)
        for start, until, what in set(planning.qualified)
        if text_at <= start
        and until <= end
        and not what.startswith("'")
        and planning.text[start:until] == text[start - text_at : until - text_at]
    ]


def _bits(word: str, length: int, position: int) -> SqlType:
    shown = "varbit" if word == "varbit" else "bit"
    if length < 1:
        raise InvalidParameterValue(
            f"length for type {shown} must be at least 1", position=position
        )
    if length > MOST_BITS:
        raise InvalidParameterValue(
            f"length for type {shown} cannot exceed {MOST_BITS}", position=position
        )
    return SqlType(word, length)


def _modified(word: str, modifiers: tuple[int, ...], at: int) -> SqlType:
    if not modifiers:
        return NUMBER if word == "numeric" else SqlType(word)
    position = at + 1
    if word == "numeric":
        precision = modifiers[0]
        scale = modifiers[1] if len(modifiers) > 1 else 0
        if len(modifiers) > 2:
            raise InvalidParameterValue("invalid NUMERIC type modifier", position=position)
        if not 1 <= precision <= 1000:
            raise InvalidParameterValue(
                f"NUMERIC precision {precision} must be between 1 and 1000", position=position
            )
        if not -1000 <= scale <= 1000:
            raise InvalidParameterValue(
                f"NUMERIC scale {scale} must be between -1000 and 1000", position=position
            )
        return numeric(precision, scale)
    if word in ("varchar", "bpchar"):
        (length,) = modifiers[:1]
        shown = "varchar" if word == "varchar" else "char"
        if length < 1:
            raise InvalidParameterValue(
                f"length for type {shown} must be at least 1", position=position
            )
        if length > 10485760:
            raise InvalidParameterValue(
                f"length for type {shown} cannot exceed 10485760", position=position
            )
        return SqlType(word, length)
    if word in BIT_TYPES:
        return _bits(word, modifiers[0], position)
    if word in _DIGITS:
        return SqlType(word, min(modifiers[0], 6))
    raise SyntaxError_(f'type modifier is not allowed for type "{word}"', position=position)
