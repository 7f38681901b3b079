"""Edits of a text that is SQL: parts of it replaced, and what is beside them left as it was.

    apply_edits('NOT"c".a', [(3, 8, "a")]) == "NOT a"

Without quotes a name may not stand next to another word, nor may two quoted names; so a space comes
between where an edit would let them meet.
"""

from collections.abc import Iterable

Edit = tuple[int, int, str]  # [start, end) of the text, and what stands there instead


def apply_edits(text: str, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
    """Return `text` from `start` to `end` with the edits that are within; none overlap."""
    end = len(text) if end is None else end
    edited, position = "", start
    for at, until, what in sorted(edits):
        if start <= at and until <= end:
            assert position <= at, (text, at, what)
            edited = _joined(_joined(edited, text[position:at]), what)
            position = until
    return _joined(edited, text[position:end])


def _joined(left: str, right: str) -> str:
    if not left or not right:
        return left + right
    last, first = left[-1], right[0]
    meet = (_in_word(last) and _in_word(first)) or last == first == '"'
    return f"{left} {right}" if meet else left + right


def _in_word(c: str) -> bool:
    return c.isalnum() or c in "_$" or not c.isascii()
