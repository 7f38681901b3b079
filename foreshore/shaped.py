"""Arrays of any shape: several dimensions, each with a length and a lowest subscript.

Such an array is stored as bytes that sort as PostgreSQL orders arrays: its elements, row by row, as
those of a list (`structured.py`); the number of dimensions; the length of each, and the lowest
subscript of each. An array without elements has no dimensions. Arrays of one dimension whose
subscripts start at 1 are usually plain arrays instead, of type `array`.
"""

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from foreshore.array_text import SPACES, quote_element
from foreshore.errors import DataError, InvalidTextRepresentation
from foreshore.structured import items_bytes, read_items
from foreshore.types import Datum, SqlType, item_of

_HALF = 2**31
MAX_DIMENSIONS = 6


class Shaped(NamedTuple):
    """An array's elements, row by row, and the length and lowest subscript of each dimension."""

    items: tuple[Datum, ...]
    lengths: tuple[int, ...]
    lowest: tuple[int, ...]

    @property
    def dimensions(self) -> int:
        """Return the number of dimensions."""
        return len(self.lengths)


EMPTY = Shaped((), (), ())


def plain(items: Sequence[Datum]) -> Shaped:
    """Return the array of one dimension whose subscripts start at 1."""
    return Shaped(tuple(items), (len(items),), (1,)) if items else EMPTY


def stored_shaped(array: Shaped, type: SqlType) -> bytes:
    """Return the stored form of an array of `type`."""
    numbers = [*array.lengths, *array.lowest]
    shape = b"".join((number + _HALF).to_bytes(4, "big") for number in numbers)
    return items_bytes(array.items, item_of(type)) + bytes([array.dimensions]) + shape


def shaped_of(datum: bytes, type: SqlType) -> Shaped:
    """Return the array of a stored form."""
    items, at = read_items(datum, 0, item_of(type))
    count = datum[at]
    numbers = [
        int.from_bytes(datum[start : start + 4], "big") - _HALF
        for start in range(at + 1, at + 1 + 8 * count, 4)
    ]
    return Shaped(items, tuple(numbers[:count]), tuple(numbers[count:]))


def stacked(arrays: Sequence[Shaped]) -> Shaped:
    """Return the array of arrays of one shape, with one dimension more; raises DataError."""
    if not arrays or all(not each.items for each in arrays):
        return EMPTY
    first = arrays[0]
    if any(each.lengths != first.lengths or each.lowest != first.lowest for each in arrays):
        raise DataError(
            "multidimensional arrays must have array expressions with matching dimensions",
            sqlstate="2202E",
        )
    if first.dimensions == MAX_DIMENSIONS:
        raise _too_many_dimensions()
    items = tuple(item for each in arrays for item in each.items)
    return Shaped(items, (len(arrays), *first.lengths), (1, *first.lowest))


def concatenated(a: Shaped, b: Shaped) -> Shaped:
    """Return `a || b`: rows of one shape, or a row added to an array; raises DataError."""
    if not a.items or not b.items:
        return a if not b.items else b
    if a.dimensions == b.dimensions and a.lengths[1:] == b.lengths[1:]:
        lengths = (a.lengths[0] + b.lengths[0], *a.lengths[1:])
        return Shaped(a.items + b.items, lengths, a.lowest)
    if a.dimensions == b.dimensions + 1 and a.lengths[1:] == b.lengths:
        return Shaped(a.items + b.items, (a.lengths[0] + 1, *a.lengths[1:]), a.lowest)
    if b.dimensions == a.dimensions + 1 and b.lengths[1:] == a.lengths:
        return Shaped(a.items + b.items, (b.lengths[0] + 1, *b.lengths[1:]), b.lowest)
    raise DataError("cannot concatenate incompatible arrays", sqlstate="2202E")


def element_at(array: Shaped, places: Sequence[int]) -> Datum:
    """Return the element at subscripts, NULL where there is none."""
    if len(places) != array.dimensions:
        return None
    at = 0
    for place, length, low in zip(places, array.lengths, array.lowest, strict=True):
        if not low <= place < low + length:
            return None
        at = at * length + place - low
    return array.items[at]


def part_of(array: Shaped, bounds: Sequence[tuple[int | None, int | None]]) -> Shaped:
    """Return a slice; bounds that are None are those of the array. Subscripts start at 1."""
    if len(bounds) > array.dimensions:
        return EMPTY
    ranges: list[range] = []
    for i, (length, low) in enumerate(zip(array.lengths, array.lowest, strict=True)):
        first, last = bounds[i] if i < len(bounds) else (None, None)
        first = low if first is None else max(first, low)
        last = low + length - 1 if last is None else min(last, low + length - 1)
        ranges.append(range(first - low, last - low + 1))
    if not all(ranges):
        return EMPTY
    places = [0]
    for length, chosen in zip(array.lengths, ranges, strict=True):
        places = [place * length + step for place in places for step in chosen]
    return Shaped(
        tuple(array.items[place] for place in places),
        tuple(map(len, ranges)),
        (1,) * len(ranges),
    )


def filled(value: Datum, lengths: Sequence[int], lowest: Sequence[int]) -> Shaped:
    """Return the array of one value in all places."""
    count = prod(lengths) if lengths else 0
    return Shaped((value,) * count, tuple(lengths), tuple(lowest)) if count else EMPTY


def nested(array: Shaped) -> Any:
    """Return the elements as lists of lists."""
    rows: list[Any] = list(array.items)
    for length in reversed(array.lengths[1:]):
        rows = [rows[at : at + length] for at in range(0, len(rows), length)]
    return rows


# --- text -------------------------------------------------------------------------------------

MOST_DIGITS = 20  # of a bound

_BOUND = re.compile(r"\s*\[\s*([+-]?[0-9]+)\s*(?::\s*([+-]?[0-9]+)\s*)?\]")
_EQUALS = re.compile(r"\s*=\s*")


def has_shape(text: str) -> bool:
    """Return whether the text of an array tells bounds or has braces within its braces."""
    body = text.lstrip(SPACES)
    if body.startswith("["):
        return True
    quoted = escaped = False
    for character in body[1:]:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == "{" and not quoted:
            return True
    return False


def _malformed(text: str, detail: str) -> InvalidTextRepresentation:
    return InvalidTextRepresentation(f'malformed array literal: "{text}"', detail=detail)


def _too_many_dimensions() -> DataError:
    return DataError(
        f"number of array dimensions ({MAX_DIMENSIONS + 1}) exceeds the maximum allowed "
        f"({MAX_DIMENSIONS})",
        sqlstate="54000",
    )


def parse_shaped(text: str, read: Callable[[str], Datum]) -> Shaped:
    """Return the array of a text; `read` returns an element's datum."""
    lowest: list[int] = []
    highest: list[int] = []
    at = 0
    while (bound := _BOUND.match(text, at)) is not None:
        if max(len(each or "") for each in bound.groups()) > MOST_DIGITS:
            raise _malformed(text, "Array bound is out of integer range.")
        low, high = (1, int(bound[1])) if bound[2] is None else (int(bound[1]), int(bound[2]))
        if not -_HALF <= low <= high < _HALF - 1:
            message = "upper bound cannot be less than lower bound"
            raise DataError(message, sqlstate="2202E")
        if len(lowest) == MAX_DIMENSIONS:
            raise _too_many_dimensions()
        lowest.append(low)
        highest.append(high)
        at = bound.end()
    if lowest:
        equals = _EQUALS.match(text, at)
        if equals is None:
            raise _malformed(text, 'Missing "=" after array dimensions.')
        at = equals.end()
    items, lengths, at = _braces(text, at)
    if text[at:].strip(SPACES):
        raise _malformed(text, "Junk after closing right brace.")
    if lowest and [h - low + 1 for low, h in zip(lowest, highest, strict=True)] != lengths:
        raise _malformed(text, "Specified array dimensions do not match array contents.")
    if not items:
        return EMPTY
    data = tuple(None if item is None else read(item) for item in items)
    return Shaped(data, tuple(lengths), tuple(lowest or (1,) * len(lengths)))


def _braces(text: str, at: int, dimension: int = 1) -> tuple[list[str | None], list[int], int]:
    """Return the texts and lengths of what is in the braces at `at`, and the place after them."""
    if dimension > MAX_DIMENSIONS:
        raise _too_many_dimensions()
    at = _past_blanks(text, at)
    if text[at : at + 1] != "{":
        raise _malformed(text, 'Array value must start with "{" or dimension information.')
    at = _past_blanks(text, at + 1)
    if text[at : at + 1] == "}":
        return [], [], at + 1
    items: list[str | None] = []
    inner: list[int] | None = None
    count = 0
    while True:
        if text[at : at + 1] == "{":
            row, lengths, at = _braces(text, at, dimension + 1)
        else:
            item, at = _element(text, at)
            row, lengths = [item], []
        if inner is not None and lengths != inner:
            raise _malformed(
                text, "Multidimensional arrays must have sub-arrays with matching dimensions."
            )
        inner = lengths
        items += row
        count += 1
        at = _past_blanks(text, at)
        character = text[at : at + 1]
        if not character:
            raise _malformed(text, "Unexpected end of input.")
        at = _past_blanks(text, at + 1)
        if character == "}":
            return items, [count, *inner], at
        if character != ",":
            raise _malformed(text, "Unexpected array element.")


def _past_blanks(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in SPACES:
        at += 1
    return at


def _element(text: str, at: int) -> tuple[str | None, int]:
    """Return the text of the element at `at`, None for NULL, and the place after it."""
    parts: list[str] = []
    if text[at : at + 1] == '"':
        at += 1
        while text[at : at + 1] != '"':
            at += text[at : at + 1] == "\\"
            if at >= len(text):
                raise _malformed(text, "Unexpected end of input.")
            parts.append(text[at])
            at += 1
        return "".join(parts), at + 1
    kept = 0
    escaped = False
    while text[at : at + 1] and text[at] not in ",}":
        if text[at] in '"{':
            raise _malformed(text, f'Unexpected "{text[at]}" character.')
        blank = text[at] in SPACES
        if text[at] == "\\":
            at, escaped, blank = at + 1, True, False
        parts.append(text[at : at + 1])
        kept = kept if blank else len(parts)
        at += 1
    found = "".join(parts[:kept])
    if not found:
        raise _malformed(text, f'Unexpected "{text[at : at + 1]}" character.')
    return (None if found.lower() == "null" and not escaped else found), at


def format_shaped(array: Shaped, show: Callable[[Datum], str]) -> str:
    """Return the text of an array; `show` returns an element's text."""
    if not array.items:
        return "{}"
    bounds = ""
    if any(low != 1 for low in array.lowest):
        pairs = zip(array.lowest, array.lengths, strict=True)
        bounds = "".join(f"[{low}:{low + length - 1}]" for low, length in pairs) + "="
    texts = ["NULL" if item is None else quote_element(show(item)) for item in array.items]
    for length in reversed(array.lengths):
        rows = range(0, len(texts), length)
        texts = ["{" + ",".join(texts[at : at + length]) + "}" for at in rows]
    return bounds + texts[0]
