"""Values of random statements: few of each type, so that they meet, with the edges of the type."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from uuid import UUID

# The texts of values by the type's name; those of NULLs are not among them.
VALUES: dict[str, tuple[str, ...]] = {
    "smallint": ("0", "1", "2", "3", "5", "-1", "7", "32767"),
    "int": ("0", "1", "2", "3", "4", "5", "-1", "10", "100", "-7", "2147483647"),
    "bigint": ("0", "1", "2", "3", "4", "-1", "11", "5000000000", "-5000000000000"),
    "numeric": ("0", "1", "1.5", "2", "-0.25", "3.10", "100", "123456.5678"),
    "numeric(10,2)": ("0", "1", "1.50", "2", "-0.25", "3.10", "100", "99999999.99"),
    "float8": ("0", "1", "1.5", "2", "-0.25", "3", "100", "1e10"),
    "text": ("", "a", "b", "c", "ab", "abc", "A", "a b", "日", "1", "12", "x_y", "%", "it's"),
    "varchar(8)": ("", "a", "b", "c", "ab", "B", "z z", "1"),
    "bool": ("t", "f"),
    "uuid": tuple(f"0000000{n}-0000-4000-8000-00000000000{n}" for n in range(5)),
    "date": ("2024-01-01", "2024-02-29", "2024-12-31", "1999-05-06", "2024-01-02"),
    "timestamp": ("2024-01-01 00:00:00", "2024-02-29 12:30:45.5", "1999-05-06 23:59:59.999999"),
    "timestamptz": ("2024-01-01 00:00:00+00", "2024-02-29 12:30:45.5+00", "1999-05-06 01:02:03+00"),
    "time": ("00:00:00", "12:30:45.5", "23:59:59"),
    "interval": ("1 day", "01:00:00", "1 mon", "-00:00:01", "24:00:00"),
    "char(4)": ("", "a", "b", "ab", "abcd", "A"),
    "mood": ("sad", "ok", "happy"),
    "bytea": ("\\x", "\\x00", "\\x6162", "\\xff"),
    "jsonb": (
        "1",
        '"a"',
        "null",
        "{}",
        "[]",
        '{"a": 1, "b": "x"}',
        '{"a": {"b": [1, 2]}}',
        "[1, 2, 3]",
        '{"a": null}',
        "true",
    ),
    "int[]": ("{}", "{1}", "{1,2}", "{3,NULL,1}", "{5,5}"),
    "text[]": ("{}", "{a}", "{a,b}", '{"",NULL}', '{"x y"}'),
}
# More of them that only rows have: constants with an error are one in PostgreSQL without any row.
OF_ROWS = {"float8": ("NaN", "-0", "Infinity"), "date": ("infinity",), "timestamp": ("-infinity",)}
OIDS = {
    "smallint": 21,
    "int": 23,
    "bigint": 20,
    "numeric": 1700,
    "float8": 701,
    "text": 25,
    "bool": 16,
    "uuid": 2950,
    "date": 1082,
    "timestamp": 1114,
    "timestamptz": 1184,
    "time": 1083,
    "interval": 1186,
    "bytea": 17,
    "char(4)": 1042,
    "jsonb": 3802,
    "int[]": 1007,
    "text[]": 1009,
}
INTEGERS = ("smallint", "int", "bigint")
NUMBERS = (*INTEGERS, "numeric", "float8")
KEYS = (
    *(
        "int",
        "int",
        "bigint",
        "text",
        "text",
        "uuid",
        "date",
        "numeric",
        "timestamptz",
        "varchar(8)",
    ),
    *("smallint", "char(4)", "bool", "time", "bytea", "float8", "interval", "timestamp", "mood"),
    "numeric(10,2)",
)
# Those of which many values are made, so that many rows have keys.
WIDE_KEYS = ("int", "bigint", "text", "uuid", "numeric", "date", "varchar(8)", "timestamptz")


def plain(type: str) -> str:
    """Return the type without its length or scale."""
    return {"varchar(8)": "text", "numeric(10,2)": "numeric"}.get(type, type)


# Types of which a value may be compared with one of a type.
ALIKE = {
    "int": ("bigint", "smallint", "numeric", "float8"),
    "bigint": ("int", "smallint", "numeric"),
    "smallint": ("int", "bigint"),
    "numeric": ("int", "bigint", "float8"),
    "text": ("varchar(8)", "char(4)"),
    "char(4)": ("text", "varchar(8)"),
    "date": ("timestamp", "timestamptz"),
    "timestamp": ("date", "timestamptz"),
    "timestamptz": ("date", "timestamp"),
}


def wide_value(type: str, number: int) -> str:
    """Return the `number`th of many values of a type."""
    match type:
        case "uuid":
            return f"{number:08x}-0000-4000-8000-000000000000"
        case "date":
            year, day = divmod(number, 336)
            return f"{1990 + year}-{day // 28 + 1:02}-{day % 28 + 1:02}"
        case "timestamptz":
            return (
                f"2024-01-{number % 28 + 1:02} {number // 28 % 24:02}:00:{number // 672 % 60:02}+00"
            )
        case "numeric":
            return f"{number}.5" if number % 3 == 0 else str(number)
        case "text" | "varchar(8)":
            return f"k{number}"
        case _:
            return str(number)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A literal of a statement that may be a parameter."""

    type: str
    values: tuple[str | None, ...]  # one for each execution
    is_cast: bool  # whether it says its type
    is_escaped: bool = False  # whether it is written with escapes


_MARK = re.compile("\x01(\\d+)\x02")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with places for literals."""

    text: str  # with marks
    parameters: tuple[Parameter, ...]
    order: str = ""  # "total", "none", or "counted" if only the number of rows is determined
    changes: bool = False
    is_of_catalog: bool = False

    def literal(self, run: int) -> str:
        """Return it with literals."""

        def written(match: re.Match[str]) -> str:
            each = self.parameters[int(match[1])]
            value = each.values[run]
            if value is None:
                return f"NULL::{each.type}" if each.is_cast else "NULL"
            if plain(each.type) in (*INTEGERS, "numeric") and not each.is_cast:
                return value if value[0] != "-" else f"({value})"
            quoted = "'" + value.replace("'", "''") + "'"
            if each.is_escaped:
                escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("a", "\\x61")
                quoted = f"E'{escaped}'"
            return f"{quoted}::{each.type}" if each.is_cast else quoted

        return _MARK.sub(written, self.text)

    @property
    def _used(self) -> list[int]:
        return list(dict.fromkeys(int(each) for each in _MARK.findall(self.text)))

    def prepared(self) -> str:
        """Return it with parameters."""
        used = self._used

        def written(match: re.Match[str]) -> str:
            number = int(match[1])
            each = self.parameters[number]
            return f"${used.index(number) + 1}" + (f"::{each.type}" if each.is_cast else "")

        return _MARK.sub(written, self.text)

    def args(self, run: int) -> list[str | None]:
        """Return the arguments of an execution."""
        return [self.parameters[number].values[run] for number in self._used]

    def some_args(self, random: Random) -> list[str | None]:
        """Return arguments of any of the executions."""
        return [random.choice(self.parameters[number].values) for number in self._used]

    def types(self) -> list[str]:
        """Return the names of the types of the parameters."""
        return [plain(self.parameters[number].type) for number in self._used]

    def oids(self) -> list[int]:
        """Return the types of the parameters."""
        return [OIDS.get(each, 0) for each in self.types()]


RUNS = 3
_FORMATS = {"smallint": "!h", "int": "!i", "bigint": "!q", "float8": "!d"}


def encoded(type: str, value: str | None, *, binary: bool) -> tuple[bytes | None, int]:
    """Return an argument as it is sent, and its format: binary if asked for and known here."""
    if value is None:
        return None, 0
    if binary and type in _FORMATS:
        number = float(value) if type == "float8" else int(value)
        return struct.pack(_FORMATS[type], number), 1
    if binary and type == "uuid":
        return UUID(value).bytes, 1
    if binary and type == "bool":
        return (b"\1" if value == "t" else b"\0"), 1
    return value.encode(), int(binary and type == "text")


class Values:
    """Makes values and parameters."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.parameters: list[Parameter] = []

    def value(self, type: str, keys: Sequence[str] = ()) -> str:
        """Return the text of a value, perhaps one of `keys`."""
        if keys and self.random.random() < 0.7:
            return self.random.choice(keys)
        return self.random.choice(VALUES[type])

    def parameter(self, type: str, keys: Sequence[str] = (), *, cast: float = 0.3) -> str:
        """Return the mark of a new parameter."""
        nulls = 0.04
        values = tuple(
            None if self.random.random() < nulls else self.value(type, keys) for _ in range(RUNS)
        )
        is_cast = self.random.random() < cast or type == "float8"
        is_escaped = self.random.random() < 0.1
        self.parameters.append(Parameter(type, values, is_cast, is_escaped))
        return f"\x01{len(self.parameters) - 1}\x02"

    def given(self, type: str, values: Sequence[str]) -> str:
        """Return the mark of a parameter with such values, one for each run."""
        self.parameters.append(Parameter(type, tuple(values), is_cast=True))
        return f"\x01{len(self.parameters) - 1}\x02"
