"""Avro schemas that refer to others of a registry, as one document."""

from collections.abc import Mapping
from typing import Any

_INNER = ("type", "items", "values")  # where a type has others, beside the fields of a record


def inlined(document: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema in which the first use of each named type is its definition.

    `definitions` are schemas by the full names of the types that they define.
    """
    return _inlined(document, definitions, set(), "")


def _inlined(schema: Any, definitions: Mapping[str, Any], placed: set[str], space: str) -> Any:
    match schema:
        case str():
            name = schema if schema in definitions else _full(schema, space)
            if name not in definitions:
                return schema
            if name in placed:
                return name
            placed.add(name)
            definition = definitions[name]
            if isinstance(definition, dict) and "name" in definition:
                definition = {**definition, "name": name}  # which says its namespace too
            return _inlined(definition, definitions, placed, "")
        case list():
            return [_inlined(each, definitions, placed, space) for each in schema]
        case dict():
            if "name" in schema:
                name = _full(schema["name"], schema.get("namespace") or space)
                placed.add(name)
                space = name.rpartition(".")[0]
            found = dict(schema)
            for key in _INNER:
                if key in found:
                    found[key] = _inlined(found[key], definitions, placed, space)
            if "fields" in found:
                found["fields"] = [
                    {**each, "type": _inlined(each["type"], definitions, placed, space)}
                    for each in found["fields"]
                ]
            return found
    return schema


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
