r"""Table functions whose columns follow from a constant: regexp_extract, csv_extract.

    regexp_extract('(?P<key>\w+)=(\w+)', 'a=1')   one row, with the columns key and column2
    csv_extract(2, 'a,b')                          a row for each line, column1 and column2

`repeat_row_non_negative(n)` has n rows without columns; it is a series of integers from 1.
"""

import io
import re
from collections.abc import Iterator
from functools import lru_cache

from foreshore.csv_rows import CsvError, csv_rows
from foreshore.errors import FeatureNotSupported, InvalidParameterValue
from foreshore.expr.functions.function import (
    BY_KEY,
    TABLES,
    Literals,
    Overload,
    TableFunction,
    declare,
    declare_table,
)
from foreshore.expr.functions.jsontext import dumps
from foreshore.expr.functions.pattern import flags_of
from foreshore.expr.functions.regex import Regex, compile_regex
from foreshore.expr.functions.regex_match import captures, matching
from foreshore.expr.functions.rows import fail, mapped

MOST_COLUMNS = 1600
REPEAT = "repeat_row_non_negative"
COUNT = "_count_of_rows(int8)"
# In a pattern: an escaped letter, a bracket expression, or the start of a group with a name.
_GROUP = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*+\]|\((?!\?)|\(\?P?<([A-Za-z_]\w*)>", re.DOTALL)


def _read(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Return a pattern without the names of its groups, and the names of their columns."""
    names: list[str] = []

    def unnamed(found: re.Match[str]) -> str:
        if not found[0].startswith("("):
            return found[0]
        names.append(found[1] or f"column{len(names) + 1}")
        return "("

    return _GROUP.sub(unnamed, pattern), tuple(names)


@lru_cache(256)
def _compiled(pattern: str) -> Regex:
    return compile_regex(_read(pattern)[0], flags_of("", "regexp_extract"))


def _constant(name: str, literals: Literals, type: type, what: str) -> object:
    value = literals[0] if literals else None
    if not isinstance(value, type):
        raise FeatureNotSupported(f"{name} needs {what} constant as its first argument")
    return value


def _names_of_groups(literals: Literals) -> tuple[str, ...]:
    pattern = _constant("regexp_extract", literals, str, "a text")
    assert isinstance(pattern, str)
    names = _read(pattern)[1]
    if not names:
        raise InvalidParameterValue("regexp_extract needs a pattern with a group")
    return _checked(names)


def _names_of_fields(literals: Literals) -> tuple[str, ...]:
    count = _constant("csv_extract", literals, int, "an integer")
    assert isinstance(count, int)
    if count < 1:
        raise InvalidParameterValue(f"csv_extract needs at least one column, not {count}")
    return _checked(tuple(f"column{n + 1}" for n in range(min(count, MOST_COLUMNS + 1))))


def _checked(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MOST_COLUMNS:
        raise InvalidParameterValue(f"functions can return at most {MOST_COLUMNS} columns")
    return names


def _groups_of_match(pattern: str, text: str) -> tuple[str, ...]:
    """Return the groups of the first match, in no row or one."""
    regex = _compiled(pattern)
    found = matching(regex, text)
    bounds = found.find()
    return () if bounds is None else (dumps(captures(regex, found, bounds)),)


def _records(count: int, text: str) -> tuple[str, ...]:
    """Return the records of a csv text that have `count` fields; others are left out."""
    return tuple(dumps(record) for record in _parsed_records(text) if len(record) == count)


def _parsed_records(text: str) -> Iterator[list[str]]:
    try:
        yield from csv_rows(io.StringIO(text, newline=""))
    except CsvError as error:
        raise fail("22P04", f"malformed csv: {error}") from None


def _count(rows: int) -> int:
    if rows < 0:
        raise fail("22023", f"{REPEAT} needs a number of rows that is not negative, not {rows}")
    return rows


declare_table(
    "regexp_extract",
    "text text",
    "jsonb[]",
    mapped(_groups_of_match),
    names_of=_names_of_groups,
    fallible=True,
)
declare_table(
    "csv_extract",
    "int4 text",
    "jsonb[]",
    mapped(_records),
    names_of=_names_of_fields,
    fallible=True,
)
declare("_count_of_rows", "int8", "int8", mapped(_count), fallible=True)
_series = BY_KEY["generate_series(int8,int8)"]
_rows = TableFunction((), item_hidden=True)
TABLES[REPEAT] = [(Overload(_series.args, _series, _series.args), _rows)]
