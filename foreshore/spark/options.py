"""Options of the data source, as Spark gives them: a mapping of texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from foreshore.errors import InvalidParameterValue
from foreshore.spark.opened import Place
from foreshore.storage.lease_file import MAX_LEASE_MS
from foreshore.update import Timestamp

KNOWN = frozenset(
    (
        "path",
        "collection",
        "blob",
        "consensus",
        "asof",
        "changes",
        "from",
        "to",
        "columns",
        "where",
        "partitions",
        "lease",
        "snapshot",
        "cache",
    )
)


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be read, and how."""

    place: Place
    collection: str
    as_of: Timestamp | None  # None: the last readable time
    changes: bool
    start: Timestamp | None  # changes later than this; None: from the first readable time on
    end: Timestamp | None  # changes up to this, inclusively; None: up to the last readable time
    columns: tuple[str, ...] | None
    where: str | None  # conditions that the rows fulfil
    partitions: int
    lease_ms: int
    snapshot: bool  # whether a stream begins with the rows that are there
    cache: str  # the directory for files of a remote store


def parse(given: Mapping[str, str]) -> Options:
    """Return the options; raises InvalidParameterValue if one is unknown, missing or wrong."""
    found = {name.lower(): str(value) for name, value in given.items()}
    unknown = sorted(found.keys() - KNOWN)
    if unknown:
        raise InvalidParameterValue(f'unknown option "{unknown[0]}"')
    for name in ("path", "collection"):
        if name not in found:
            raise InvalidParameterValue(f'option "{name}" is missing')
    times = {name: _time(name, found.get(name)) for name in ("asof", "from", "to")}
    changes = _flag(found, "changes", False)
    if not changes and (times["from"] is not None or times["to"] is not None):
        raise InvalidParameterValue('options "from" and "to" need option "changes"')
    if changes and times["asof"] is not None:
        raise InvalidParameterValue('changes are read "from" and "to" a time, not "asOf" one')
    columns = found.get("columns")
    seconds = _number(found, "lease", MAX_LEASE_MS // 1000)
    return Options(
        Place(found["path"].removeprefix("file://"), found.get("blob"), found.get("consensus")),
        found["collection"],
        times["asof"],
        changes,
        times["from"],
        times["to"],
        None if columns is None else tuple(name.strip() for name in columns.split(",")),
        found.get("where"),
        _number(found, "partitions", 200),
        min(seconds * 1000, MAX_LEASE_MS),
        _flag(found, "snapshot", True),
        found.get("cache", ""),
    )


def _time(name: str, text: str | None) -> Timestamp | None:
    """Return a time in milliseconds since 1970, or in ISO format, in UTC if it has no zone."""
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParameterValue(f'option "{name}" is no time: "{text}"') from None
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)


def _flag(found: Mapping[str, str], name: str, default: bool) -> bool:
    text = found.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidParameterValue(f'option "{name}" is true or false, not "{text}"')
    return text == "true"


def _number(found: Mapping[str, str], name: str, default: int) -> int:
    text: Any = found.get(name, default)
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise InvalidParameterValue(f'option "{name}" is a positive number, not "{text}"')
    return number
