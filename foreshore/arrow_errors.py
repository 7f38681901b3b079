"""Error messages for invalid Arrow values; Arrow's own name its types and functions."""

import re

import pyarrow as pa

_COLUMN = re.compile(r"[Ii]n column (?P<place>\d+): ")
_OUTSIDE = re.compile(r"(?P<type>\w+)\[\w+\] (?P<value>-?\d+) is not within the acceptable range")
_TRUNCATED = re.compile(r"would lose data")
_BOUNDS = re.compile(r"out of bounds|not in range|overflow", re.I)
_RAGGED = re.compile(
    r"(?:Row #(?P<row>\d+): )?Expected (?P<wanted>\d+) columns, got (?P<found>\d+)"
)
_CSV_TEXT = re.compile(r"(?:Row #(?P<row>\d+): [^:]*: )?invalid UTF8")
_JSON = re.compile(r"Malformed JSON")
_EMPTY = re.compile(r"file size is 0 bytes|[Ee]mpty CSV file|Empty JSON")
_JSON_OF_TABLE = re.compile(r"Json error|Invalid JSON|json_invalid")
_WORDS = {
    "decimal": "numeric",
    "timestamp": "timestamp",
    "duration": "interval",
    "time": "time",
    "date": "date",
}


def describe_arrow_error(error: Exception) -> str:
    """Return what is wrong with a value or a batch, as the end of a sentence about it."""
    said = str(error)
    if isinstance(error, UnicodeDecodeError) or "UTF8" in said or "UTF-8" in said:
        return "it has text that is not valid UTF8"
    column = _COLUMN.search(said)
    at = f"column {int(column['place']) + 1} has" if column else "it has"
    if found := _OUTSIDE.search(said):
        return f"{at} a {_word(found['type'])} out of range"
    if "whole number of days" in said:
        return f"{at} a date with a part of a day"
    if _TRUNCATED.search(said):
        return f"{at} a value with more digits than microseconds have"
    if _BOUNDS.search(said):
        return f"{at} a value out of range"
    if isinstance(error, pa.ArrowNotImplementedError):
        return f"{at} a type that is not supported"
    return f"{at} a part that cannot be read"


def describe_file_error(error: Exception) -> str:
    """Return what is wrong with a file that a reader of Arrow, DuckDB or a table format refuses."""
    said = str(error)
    if found := _RAGGED.search(said):
        wanted, columns = found["wanted"], found["found"]
        return f"{_row(found)} has {columns} columns, and must have {wanted}"
    if found := _CSV_TEXT.search(said):
        return f"{_row(found)} is not valid UTF8"
    if _JSON.search(said):
        return "it has malformed JSON"  # DuckDB counts its lines otherwise
    if _EMPTY.search(said):
        return "it is empty"
    if _JSON_OF_TABLE.search(said):
        return "its metadata is not valid JSON"
    return "it is damaged, or of another format"


def _row(found: re.Match[str]) -> str:
    return f"row {found['row']}" if found["row"] else "a row"


def _word(type: str) -> str:
    return next((word for name, word in _WORDS.items() if type.startswith(name)), type)
