"""Constants of a long list in the text, as they are written: literals, or parameters.

A parameter may be cast to a type: `$1::numeric(5, 2)`.
"""

import re
from collections.abc import Iterator
from typing import Any

_TYPE = (
    r"[a-z_][a-z_0-9]*+(?: (?:varying|precision)\b)?+(?: ?\([0-9]++(?:, ?[0-9]++)?+\))?+"
    r"(?: with(?:out)? time zone\b)?+(?:\[\])?+"
)
CONSTANT = (
    r"(?:[+-]?[0-9]++(?:\.[0-9]++)?+(?:e[+-]?[0-9]++)?+|'(?:[^'\\]|'')*+'|(?:null|true|false)\b"
    rf"|\$[0-9]{{1,5}}+(?:::{_TYPE})?+)"
)
_CONSTANT = re.compile(CONSTANT, re.IGNORECASE | re.ASCII)


class ConstantList:
    """Constants within [start, end) of `text`, which follow the first of `x IN (...)`.

    They are numbers, strings, NULL, TRUE, FALSE and parameters. A string has no backslash. `types`
    are the syntax of the types to which parameters are cast, by their texts; the parser adds them.
    """

    __slots__ = ("end", "start", "text", "texts", "types")

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.texts: list[str] = _CONSTANT.findall(text, start, end)
        self.types: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The ranges that the syntax has not."""
        return [(self.start, self.end)]

    @property
    def has_parameters(self) -> bool:
        """Whether a constant is a parameter."""
        return any(text[0] == "$" for text in self.texts)

    @property
    def casts(self) -> set[str]:
        """The types to which parameters are cast, as written."""
        if self.text.find("::", self.start, self.end) < 0:
            return set()
        given = (text for text in self.texts if text[0] == "$")
        return {text.partition("::")[2] for text in given} - {""}

    def placed(self) -> Iterator[tuple[str, int]]:
        """Yield the constants as written, and their offsets in the text."""
        for match in _CONSTANT.finditer(self.text, self.start, self.end):
            yield match.group(), match.start()


# In the place of the rest of a list for which there is one parameter (`sql/parse/shapes.py`).
OF_PARAMETER = ConstantList("", 0, 0)


def integers(texts: list[str]) -> list[int] | None:
    """Return constants as integers; None if one is no int4 or might be none."""
    try:
        found = list(map(int, texts))
    except ValueError:
        return None
    return found if max(map(len, texts)) <= 9 else None


def parameters(texts: list[str]) -> tuple[list[int], str] | None:
    """Return the numbers of parameters, and the type to which all are cast, as written, or "".

    None if a constant is no parameter, or they are cast to several types.
    """
    numbers, types = [], set()
    for text in texts:
        number, _, type = text.partition("::")
        if number[0] != "$":
            return None
        numbers.append(int(number[1:]))
        types.add(type)
    return (numbers, types.pop()) if len(types) == 1 else None


def unquoted(constant: str) -> str:
    """Return the value of a string constant."""
    return constant[1:-1].replace("''", "'")
