"""The settings of PostgreSQL 15: types, units, bounds and defaults, as its pg_settings has them.

`postgres_settings.tsv` has a line for each, without those of a server's files, network and
replication. `settings.py` makes variables of them: a session may set those that tune PostgreSQL,
without effect, and see the rest.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from foreshore.errors import InvalidParameterValue

_BYTES = {"B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_MICROSECONDS = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000,
    "d": 86_400_000_000,
}  # fmt: skip
_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)\s*+(\w*)")
_REFUSALS = {
    "internal": "cannot be changed",
    "postmaster": "cannot be changed without restarting the server",
    "sighup": "cannot be changed now",
    "backend": "cannot be set after connection start",
    "superuser-backend": "cannot be set after connection start",
}
# Another value than the default would change answers, or promise what Foreshore does not do.
_KEPT = frozenset(
    """
    allow_in_place_tablespaces allow_system_table_mods array_nulls backslash_quote
    default_table_access_method dynamic_library_path exit_on_error ignore_checksum_failure
    ignore_system_indexes lo_compat_privileges local_preload_libraries password_encryption
    quote_all_identifiers session_preload_libraries session_replication_role
    temp_tablespaces timezone_abbreviations track_activities transform_null_equals
    zero_damaged_pages
    """.split()
)


class PostgresSetting(NamedTuple):
    """A line of pg_settings: values are in units of `unit`, `words` are those of an enum."""

    name: str
    type: str  # bool, integer, real, enum or string
    unit: str
    context: str
    category: str
    low: str
    high: str
    words: tuple[str, ...]
    boot: str

    @property
    def refusal(self) -> str:
        """Return why a session cannot set it; empty if it can."""
        return _REFUSALS.get(self.context, "")

    @property
    def is_kept(self) -> bool:
        """Return whether only its default is accepted."""
        return self.name.lower() in _KEPT

    def amount(self, text: str) -> float:
        """Return a number, with or without a unit, in units of the setting."""
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise InvalidParameterValue(f'invalid value for parameter "{self.name}": "{text}"')
        number, unit = float(match[1]), match[2]
        if unit:
            units, base = self._units()
            if unit not in units:
                hint = None
                if units:
                    names = [f'"{each}"' for each in units]
                    listed = f"{', '.join(names[:-1])}, and {names[-1]}"
                    hint = f"Valid units for this parameter are {listed}."
                raise InvalidParameterValue(
                    f'invalid value for parameter "{self.name}": "{text}"', hint=hint
                )
            number = number * units[unit] / base
        return number if self.type == "real" else float(round(number))

    def checked(self, text: str) -> str:
        """Return a number as SHOW writes it, if it is within the bounds."""
        value = self.amount(text)
        if not float(self.low) <= value <= float(self.high):
            unit = f" {self.unit}" if self.unit else ""
            raise InvalidParameterValue(
                f"{_written(value)}{unit} is outside the valid range for parameter"
                f' "{self.name}" ({self.low} .. {self.high})'
            )
        return self.shown(value)

    def shown(self, value: float) -> str:
        """Return a number as SHOW writes it: in the largest unit in which it is whole."""
        units, base = self._units()
        if not units or value <= 0:
            return _written(value)
        for unit, size in reversed([*units.items()]):
            if value * base % size == 0:
                return f"{_written(value * base / size)}{unit}"
        return f"{_written(value)}{self.unit}"

    def _units(self) -> tuple[Mapping[str, int], int]:
        """Return the units that may be given, and the size of the setting's own."""
        if self.unit in _MICROSECONDS:
            return _MICROSECONDS, _MICROSECONDS[self.unit]
        if not self.unit:
            return {}, 1
        count = self.unit.rstrip("kMBGT")
        return _BYTES, int(count or 1) * _BYTES[self.unit.removeprefix(count)]

    @property
    def is_number(self) -> bool:
        """Return whether values are numbers."""
        return self.type in ("integer", "real")

    @property
    def default(self) -> str:
        """Return the default as SHOW writes it."""
        return self.shown(float(self.boot)) if self.is_number else self.boot

    def in_units(self, shown: str) -> str:
        """Return a value that SHOW writes as pg_settings does: a number, of the setting's units."""
        return _written(self.amount(shown)) if self.is_number and self.unit else shown


def _written(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


@cache
def postgres_settings() -> Mapping[str, PostgresSetting]:
    """Return the settings by name in lower case."""
    text = Path(__file__).with_name("postgres_settings.tsv").read_text()
    lines = (line.split("\t") for line in text.splitlines())
    return {each[0].lower(): _setting(*each) for each in lines}


def _setting(
    name: str,
    type: str,
    unit: str,
    context: str,
    category: str,
    low: str,
    high: str,
    words: str,
    boot: str,
) -> PostgresSetting:
    listed = tuple(filter(None, words.split("|")))
    return PostgresSetting(name, type, unit, context, category, low, high, listed, boot)
