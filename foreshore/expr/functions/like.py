"""LIKE, in time bounded by the length of the text times that of the pattern.

A pattern is split at each `%` into pieces of fixed length. The first piece must be at the start of
the text and the last at its end. Each of the others is searched after the one before it; its first
occurrence is always the best choice, so there is no backtracking.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from foreshore.errors import data_error
from foreshore.expr.functions.rows import Failure

ENDS_IN_ESCAPE = data_error("22025", "LIKE pattern must not end with escape character")

MOST_CHARACTERS = 1000  # maximum length of a pattern for RE2


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a pattern between two `%`: texts with their offsets, and `_` in between."""

    length: int
    texts: tuple[tuple[int, str], ...]

    def at(self, text: str, place: int) -> bool:
        """Return whether the piece is in `text` at `place`, where there is room for it."""
        return all(text.startswith(part, place + offset) for offset, part in self.texts)

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first place of the piece within `text[start:end]`, -1 if there is none."""
        if not self.texts:
            return start if start + self.length <= end else -1
        offset, part = max(self.texts, key=lambda each: len(each[1]))
        last = end - self.length + offset + len(part)  # the last possible end of `part`
        place = text.find(part, start + offset, last)
        while place >= 0 and not self.at(text, place - offset):
            place = text.find(part, place + 1, last)
        return place - offset if place >= 0 else -1


@lru_cache(1024)
def pieces(pattern: str) -> tuple[Piece, ...]:
    """Return the pieces of a LIKE pattern; raises `Failure`."""
    found: list[list[str | None]] = [[]]  # None stands for `_`
    characters = iter(pattern)
    for c in characters:
        if c == "%":
            found.append([])
        elif c == "\\":
            following = next(characters, None)
            if following is None:
                raise Failure(ENDS_IN_ESCAPE)
            found[-1].append(following)
        else:
            found[-1].append(None if c == "_" else c)
    return tuple(map(_piece, found))


def _piece(characters: list[str | None]) -> Piece:
    texts: list[tuple[int, str]] = []
    for place, c in enumerate(characters):
        if c is None:
            continue
        if texts and texts[-1][0] + len(texts[-1][1]) == place:
            texts[-1] = (texts[-1][0], texts[-1][1] + c)
        else:
            texts.append((place, c))
    return Piece(len(characters), tuple(texts))


def like_expression(pattern: str) -> str:
    """Return the expression for RE2 of a LIKE pattern; raises `Failure`."""
    inner = ".*".join(map(_expression, pieces(pattern)))
    return f"(?s)\\A{inner}\\z"


def _expression(piece: Piece) -> str:
    out, at = [], 0
    for place, text in piece.texts:
        out += ["." * (place - at), re.escape(text)]
        at = place + len(text)
    return "".join([*out, "." * (piece.length - at)])


def like_checked(pattern: str) -> None:
    """Raise `Failure` if a pattern is invalid."""
    pieces(pattern)


def like(text: str, pattern: str) -> bool:
    """Return whether `text` is like `pattern`.

    A trailing escape character is an error only if matching reaches it.
    """
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        if _matches(text, pieces(pattern[:-1] + "_%")):
            raise Failure(ENDS_IN_ESCAPE)
        return False
    return _matches(text, pieces(pattern))


def _matches(text: str, found: tuple[Piece, ...]) -> bool:
    first, last = found[0], found[-1]
    if len(text) < first.length or not first.at(text, 0):
        return False
    if len(found) == 1:
        return len(text) == first.length
    at, end = first.length, len(text) - last.length
    if end < at or not last.at(text, end):
        return False
    for piece in found[1:-1]:
        place = piece.find(text, at, end)
        if place < 0:
            return False
        at = place + piece.length
    return True
