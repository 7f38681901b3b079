"""Text forms of ranges and multiranges: `[1,5)`, `empty`, `{[1,5),[7,9)}`."""

import re
from collections.abc import Callable

from foreshore.array_text import SPACES
from foreshore.errors import InvalidTextRepresentation
from foreshore.ranges import Bound, Range, Ranges, lower_bound, make_range, union, upper_bound
from foreshore.types import Datum

Read = Callable[[str], Datum]  # a bound
Show = Callable[[Datum], str]

_SPECIAL = re.compile(r'["\\()\[\],\s]')


def parse_range(text: str, type: str, read: Read) -> Range | None:
    """Return the range that `text` denotes; `read` reads its bounds. Raises DataError."""
    reader = _Reader(text, "range")
    found = _range_at(reader, type, read)
    reader.skip_spaces()
    if reader.at < len(text):
        raise reader.malformed("Junk after right parenthesis or bracket.")
    return found


def parse_multirange(text: str, type: str, read: Read) -> Ranges:
    """Return the multirange of the range type `type` that `text` denotes."""
    reader = _Reader(text, "multirange")
    reader.skip_spaces()
    if reader.next() != "{":
        raise reader.malformed("Missing left brace.")
    found: list[Range] = []
    reader.skip_spaces()
    closed = reader.peek() == "}"
    while not closed:
        reader.skip_spaces()
        if reader.peek() not in ("[", "(") and not reader.at_word("empty"):
            raise reader.malformed("Expected range start.")
        inner = _range_at(reader, type, read)
        if inner is not None:
            found.append(inner)
        reader.skip_spaces()
        closed = reader.peek() == "}"
        if not closed and reader.next() != ",":
            raise reader.malformed("Expected comma or end of multirange.")
    reader.next()
    reader.skip_spaces()
    if reader.at < len(text):
        raise reader.malformed("Junk after closing right brace.")
    return union(found)


def format_range(range: Range | None, type: str, show: Show) -> str:
    """Return the text of a range; `show` shows its bounds."""
    if range is None:
        return "empty"
    low, high = lower_bound(range, type), upper_bound(range, type)
    return (
        ("[" if low is not None and low.inclusive else "(")
        + ("" if low is None else _quoted(show(low.value)))
        + ","
        + ("" if high is None else _quoted(show(high.value)))
        + ("]" if high is not None and high.inclusive else ")")
    )


def format_multirange(ranges: Ranges, type: str, show: Show) -> str:
    """Return the text of a multirange."""
    return "{" + ",".join(format_range(each, type, show) for each in ranges) + "}"


def _quoted(text: str) -> str:
    if text and not _SPECIAL.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def _range_at(reader: "_Reader", type: str, read: Read) -> Range | None:
    reader.skip_spaces()
    if reader.at_word("empty"):
        reader.at += len("empty")
        return None
    opening = reader.next()
    if opening not in ("[", "("):
        raise reader.malformed("Missing left parenthesis or bracket.")
    low = reader.bound()
    if reader.next() != ",":
        raise reader.malformed("Missing comma after lower bound.")
    high = reader.bound()
    closing = reader.next()
    if closing == ",":
        raise reader.malformed("Too many commas.")
    return make_range(
        None if low is None else Bound(read(low), opening == "["),
        None if high is None else Bound(read(high), closing == "]"),
        type,
    )


class _Reader:
    """Reads a text from left to right."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.at = 0
        self._what = what

    def malformed(self, detail: str) -> InvalidTextRepresentation:
        return InvalidTextRepresentation(
            f'malformed {self._what} literal: "{self.text}"', detail=detail
        )

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def next(self) -> str:
        if self.at >= len(self.text):
            if self._what == "range" and self.at == 0:
                raise self.malformed("Missing left parenthesis or bracket.")
            raise self.malformed("Unexpected end of input.")
        self.at += 1
        return self.text[self.at - 1]

    def skip_spaces(self) -> None:
        while self.peek() and self.peek() in SPACES:
            self.at += 1

    def at_word(self, word: str) -> bool:
        return self.text[self.at : self.at + len(word)].lower() == word

    def bound(self) -> str | None:
        """Return the text of a bound, None if it is infinite."""
        if self.peek() in (",", ")", "]"):
            return None
        found: list[str] = []
        quoted = False
        while quoted or self.peek() not in (",", ")", "]"):
            character = self.next()
            if character == "\\":
                found.append(self.next())
            elif character == '"':
                if quoted and self.peek() == '"':
                    found.append(self.next())
                else:
                    quoted = not quoted
            else:
                found.append(character)
        return "".join(found)
