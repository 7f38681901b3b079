"""The session's settings and names that decide how values are shown."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from foreshore.types import SqlType


class ObjectNames:
    """The names that stand for values of type regclass, regtype, ..., by type and oid.

    Those of a type are looked up when its first value is shown.
    """

    def __init__(self, names: Mapping[str, Callable[[], Mapping[int, str]]]) -> None:
        self._find = names
        self._names: dict[str, Mapping[int, str]] = {}

    def name_of(self, type: SqlType, oid: int) -> str:
        """Return the name; `-` of 0, the number itself of what is not there."""
        if not oid:
            return "-"
        names = self._names.get(type.name)
        if names is None:
            names = self._names[type.name] = self._find[type.name]()
        return names.get(oid, str(oid))


class OutputStyle(NamedTuple):
    """The session's settings that decide how values are shown.

    `float_digits` is extra_float_digits: above 0 floats are shown by the shortest text that reads
    back as the same value, else with so many digits more than the 6 or 15 that are always exact.
    """

    zone: str = "UTC"
    float_digits: int = 1
    names: ObjectNames | None = None  # None: they are shown as numbers
    intervals: str = "postgres"  # IntervalStyle
    dates: str = "ISO"  # the style of DateStyle
    bytes: str = "hex"  # bytea_output
