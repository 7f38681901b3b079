"""Replace parts of an SQL text without changing or joining the words around them.

    apply_edits('NOT"c".a', [(3, 8, "a")]) == "NOT a"

An unquoted name must not touch another word, nor a quoted name another quoted name. Where an edit
would cause that, a space is inserted.
"""

from collections.abc import Iterable

Edit = tuple[int, int, str]  # [start, end) of the text and its replacement


def apply_edits(text: str, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
    """Return the part `start` to `end` of `text` with the edits inside it, which do not overlap."""
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
