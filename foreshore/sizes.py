"""Sizes in bytes as text: `500MB`, `4 GiB`."""

import re
from functools import lru_cache

UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}

_SIZE = re.compile(r"\A\s*([0-9]{1,12})\s*([a-zA-Z]{1,3})\s*\Z")


@lru_cache(256)
def bytes_of(text: str) -> int:
    """Return the bytes of a size such as `500MB`; raises ValueError."""
    matched = _SIZE.match(text)
    unit = UNITS.get(matched[2].lower()) if matched is not None else None
    if matched is None or unit is None or not int(matched[1]):
        raise ValueError(text)
    return int(matched[1]) * unit


def shown(size: int) -> str:
    """Return a size in the largest unit in which it is whole."""
    for unit in ("TB", "TiB", "GB", "GiB", "MB", "MiB", "kB", "KiB"):
        if size % UNITS[unit.lower()] == 0:
            return f"{size // UNITS[unit.lower()]} {unit}"
    return f"{size} bytes"
