"""Bind PARTITION BY of lake tables that a sink makes, such as 'day(at), bucket(16, id)'."""

import re

from foreshore.errors import InvalidParameterValue
from foreshore.sinks.places import TRANSFORMS, PartitionField
from foreshore.sql.bind.definitions.sources.options import OptionValue, text

LONGEST = 1000  # characters
_WITH_NUMBER = ("bucket", "truncate")
_ITEM = re.compile(
    r"""\s*+(?:(?P<transform>[a-zA-Z]++)\s*+\(\s*+(?:(?P<number>[0-9]{1,9})\s*+,\s*+)?+)?+
    (?P<column>"(?:[^"]|"")++"|[^\W\d]\w*+)\s*+(?P<end>\))?+\s*+(?:,|$)""",
    re.VERBOSE,
)


def partition_fields(name: str, value: OptionValue) -> tuple[PartitionField, ...]:
    """Return by what columns, or transforms of them, a table has partitions."""
    said, at = text(name, value), 0
    found: list[PartitionField] = []
    while at < len(said) or not found:
        match = _ITEM.match(said, at) if len(said) <= LONGEST else None
        if match is None or bool(match["transform"]) != bool(match["end"]):
            raise _wrong(name, said[at:].strip())
        transform = (match["transform"] or "identity").lower()
        if transform not in TRANSFORMS or (transform in _WITH_NUMBER) != bool(match["number"]):
            raise _wrong(name, match[0].strip(" ,"))
        quoted = match["column"].startswith('"')
        column = match["column"][1:-1].replace('""', '"') if quoted else match["column"].lower()
        found.append(PartitionField(column, transform, int(match["number"] or 0)))
        at = match.end()
    return tuple(found)


def _wrong(name: str, said: str) -> InvalidParameterValue:
    return InvalidParameterValue(
        f'option "{name}": "{said[:100]}" is no partition',
        hint="Write columns, or year(c), month(c), day(c), hour(c), bucket(16, c), truncate(8, c).",
    )
