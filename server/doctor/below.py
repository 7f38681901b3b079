"""What the doctor asks of the layers below, which main.py connects it to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Contents:
    """What a data directory holds; `torn` are the bytes of a record that was not finished."""

    collections: int
    segments: int
    torn: int
    damages: tuple[str, ...]  # what is damaged, by file
    dangling: tuple[str, ...] = ()  # what the catalog names that does not exist


@dataclass(frozen=True, slots=True)
class Below:
    """How to look at a data directory, for a Java (raises Unavailable), and at the memory."""

    contents: Callable[[Path], Contents]
    java: Callable[[], str]
    memory_bytes: Callable[[], int | None]
