"""Avro schemas within bounds: what a message of a few bytes must not make its reader do.

Who may write to a topic mostly may register schemas as well. fastavro's reader, which is compiled,
has no bounds of its own: a message whose records are within each other some thousand times ends
the process, and an array of a billion items without bytes fills the memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
from fastavro._read_py import schemaless_reader as bounded_reader

from foreshore.errors import InvalidParameterValue

MOST_PARTS = 100_000  # of a record, with those of the records within it
MOST_NAMES = 1_000  # of types
MOST_LEVELS = 200  # of types within types, where none is within itself

_NESTED = ("type", "items", "values")


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as fastavro reads by it; `is_recursive` says that a type is within itself."""

    parsed: Any
    is_recursive: bool

    def read(self, data: BytesIO, reader: "Schema") -> Any:
        """Return a message that this schema wrote, as `reader` has it.

        Raises exceptions of many classes if the bytes are none, RecursionError if it is nested too
        deeply: that is noticed by the reader in Python only, which takes ten times as long.
        """
        read: Callable[..., Any] = (
            bounded_reader if self.is_recursive else fastavro.schemaless_reader
        )
        return read(data, self.parsed, reader.parsed)


def parsed(document: Any) -> Schema:
    """Return a schema; raises InvalidParameterValue if it is wrong or beyond the bounds."""
    named: dict[str, Any] = {}
    try:
        found = fastavro.parse_schema(document, named)
        measure = _Measure(named)
        parts, depth = measure.size(found)
        measure.check_items()
    except InvalidParameterValue:
        raise
    except RecursionError:
        raise InvalidParameterValue("the Avro schema is nested too deeply") from None
    except Exception as error:  # of many classes
        raise InvalidParameterValue(f"the Avro schema is wrong: {error}") from None
    if depth > MOST_LEVELS:
        raise InvalidParameterValue("the Avro schema is nested too deeply")
    if parts > MOST_PARTS or len(named) > MOST_NAMES:
        raise InvalidParameterValue(
            f"the Avro schema has more than {MOST_PARTS} parts, or {MOST_NAMES} names"
        )
    return Schema(found, measure.is_recursive)


class _Measure:
    """Measures types; `named` are those with a name."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._sizes: dict[str, tuple[int, int] | None] = {}  # None: being measured
        self._empty: dict[str, bool] = {}
        self._items: list[Any] = []
        self.is_recursive = False

    def size(self, type: Any) -> tuple[int, int]:
        """Return the parts of a value, with one item of each array, and its levels."""
        if isinstance(type, str):
            return self._size_by_name(type) if type in self._named else (1, 1)
        if isinstance(type, dict) and "name" in type:
            return self._size_by_name(type["name"])
        return self._own_size(type)

    def _size_by_name(self, name: str) -> tuple[int, int]:
        if name not in self._sizes:
            self._sizes[name] = None
            self._sizes[name] = self._own_size(self._named[name])
        found = self._sizes[name]
        if found is None:
            self.is_recursive = True
            return 1, 1
        return found

    def _own_size(self, type: Any) -> tuple[int, int]:
        within: list[tuple[int, int]]
        if isinstance(type, list):  # one of these
            within = [self.size(each) for each in type]
            parts = max((parts for parts, _ in within), default=0)
        else:
            if type["type"] == "array":
                self._items.append(type["items"])
            within = [self.size(type[key]) for key in _NESTED if key in type]
            within += [self.size(field["type"]) for field in type.get("fields", ())]
            parts = sum(parts for parts, _ in within)
        return 1 + parts, 1 + max((depth for _, depth in within), default=0)

    def check_items(self) -> None:
        """Raise InvalidParameterValue for arrays of any number of items in no bytes."""
        if any(map(self._is_empty, self._items)):
            raise InvalidParameterValue("the Avro schema has an array of items without bytes")

    def _is_empty(self, type: Any) -> bool:
        """Return whether values have no bytes: null, and records of nothing else."""
        if isinstance(type, str) and type not in self._named:
            return type == "null"
        if isinstance(type, list):
            return False
        name = type if isinstance(type, str) else type.get("name")
        if name is None:
            return bool(type["type"] == "null")
        if name not in self._empty:
            self._empty[name] = True  # within itself it adds nothing
            of = self._named[name]
            self._empty[name] = (
                all(self._is_empty(field["type"]) for field in of["fields"])
                if "fields" in of
                else of.get("size") == 0
            )
        return self._empty[name]
