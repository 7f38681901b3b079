"""Values of catalog rows that older versions wrote, in the form of this version.

Most changes of a struct need nothing here: a field that is new has a default. What moved does. A
row is upgraded whenever it is read, and stays as it is in the shard until its object changes.
"""

from typing import Any

import msgspec

# Fields of a topic that a source had itself, before tables of a source had formats of their own.
_OF_MESSAGES = (
    "value",
    "key",
    "columns",
    "includes",
    "shows_key",
    "key_name",
    "envelope",
    "errors_column",
)


def upgraded(collection: str, value: str) -> str:
    """Return the value of a row in the form of this version; most are returned as they are."""
    if collection != "item" or '"type":"kafka"' not in value:
        return value
    document: dict[str, Any] = msgspec.json.decode(value)
    spec = (document.get("feed") or {}).get("spec") or {}
    if spec.get("type") != "kafka" or "value" not in spec:
        return value
    spec["messages"] = {name: spec.pop(name) for name in _OF_MESSAGES if name in spec}
    return msgspec.json.encode(document).decode()
