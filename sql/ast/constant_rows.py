"""Constants of a long list in the text, as they are written."""

import re
from collections.abc import Iterator

CONSTANT = r"(?:[+-]?[0-9]++(?:\.[0-9]++)?+|'(?:[^'\\]|'')*+'|(?:null|true|false)\b)"
_CONSTANT = re.compile(CONSTANT, re.IGNORECASE | re.ASCII)


class ConstantRows:
    """Rows of `width` constants within [start, end) of `text`: numbers, strings, NULL, TRUE, FALSE.

    A string has no backslash. `columns` has the constants as written, a list for each column.
    """

    __slots__ = ("columns", "end", "start", "text", "width")

    def __init__(self, text: str, start: int, end: int, width: int) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.width = width
        found = _CONSTANT.findall(text, start, end)
        self.columns = [found[i::width] for i in range(width)]

    def __len__(self) -> int:
        return len(self.columns[0])

    def placed(self) -> Iterator[list[tuple[str, int]]]:
        """Yield the rows: each constant as written, and its offset in the text."""
        row = []
        for match in _CONSTANT.finditer(self.text, self.start, self.end):
            row.append((match.group(), match.start()))
            if len(row) == self.width:
                yield row
                row = []


def integers(texts: list[str]) -> list[int] | None:
    """Return constants as integers; None if one is no int4 or might be none."""
    try:
        found = list(map(int, texts))
    except ValueError:
        return None
    return found if max(map(len, texts)) <= 9 else None


def unquoted(constant: str) -> str:
    """Return the value of a string constant."""
    return constant[1:-1].replace("''", "'")
