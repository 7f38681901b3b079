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
MOST_ITEMS = 10_000_000  # of an array that an assignment fills up
LEAST, MOST = -_HALF, _HALF - 1  # a bound of a slice that is left out


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


def lowest_of(datum: bytes) -> int | None:
    """Return the lowest subscript of a stored array of one dimension; None or any if of several."""
    if len(datum) < 9 or datum[-9] != 1:
        return None
    return int.from_bytes(datum[-4:], "big") - _HALF


def stacked(arrays: Sequence[Shaped]) -> Shaped:
    """Return the array of arrays of one shape, with one dimension more; raises DataError."""
    if not arrays or all(not each.items for each in arrays):
        return EMPTY
    first = arrays[0]
    if any(each.lengths != first.lengths or each.lowest != first.lowest for each in arrays):
        raise _ragged()
    if first.dimensions == MAX_DIMENSIONS:
        raise too_many_dimensions()
    items = tuple(item for each in arrays for item in each.items)
    return Shaped(items, (len(arrays), *first.lengths), (1, *first.lowest))


def concatenated(a: Shaped, b: Shaped) -> Shaped:
    """Return `a || b`: rows of one shape, or a row added to an array; raises DataError."""
    if not a.items or not b.items:
        return a if not b.items else b
    more, less = (a, b) if a.dimensions >= b.dimensions else (b, a)
    rows = more.dimensions - less.dimensions
    inner = (more.lengths[1:], more.lowest[1:])
    if rows == 0 and inner == (less.lengths[1:], less.lowest[1:]):
        added = less.lengths[0]
    elif rows == 1 and inner == (less.lengths, less.lowest):
        added = 1
    else:
        raise DataError("cannot concatenate incompatible arrays", sqlstate="2202E")
    lengths = (more.lengths[0] + added, *more.lengths[1:])
    return Shaped(a.items + b.items, lengths, more.lowest)


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


def part_of(array: Shaped, bounds: Sequence[tuple[int, int]]) -> Shaped:
    """Return a slice; bounds that are left out, LEAST or MOST, are the array's.

    Subscripts start at 1.
    """
    if len(bounds) > array.dimensions:
        return EMPTY
    ranges: list[range] = []
    for i, (length, low) in enumerate(zip(array.lengths, array.lowest, strict=True)):
        first, last = bounds[i] if i < len(bounds) else (LEAST, MOST)
        first, last = max(first, low), min(last, low + length - 1)
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


def with_element(array: Shaped, places: Sequence[int], item: Datum) -> Shaped:
    """Return an array with another element, which extends one of one dimension; raises DataError.

    An array without elements gets the dimensions of the subscripts.
    """
    if not array.items:
        return filled(item, (1,) * len(places), places)
    if len(places) != array.dimensions:
        raise _wrong_number()
    if array.dimensions == 1:
        return _with_range(array, places[0], places[0], (item,))
    at = 0
    for place, length, low in zip(places, array.lengths, array.lowest, strict=True):
        if not low <= place < low + length:
            raise _out_of_range()
        at = at * length + place - low
    return array._replace(items=(*array.items[:at], item, *array.items[at + 1 :]))


def with_slice(array: Shaped, bounds: Sequence[tuple[int, int]], items: Sequence[Datum]) -> Shaped:
    """Return an array with other elements in a slice, the first of `items`; raises DataError.

    Bounds that are LEAST or MOST are those of the array.
    """
    if not array.items:
        if any(low == LEAST or high == MOST for low, high in bounds):
            raise DataError(
                "array slice subscript must provide both boundaries",
                detail="When assigning to a slice of an empty array value, "
                "slice boundaries must be fully specified.",
                sqlstate="2202E",
            )
        lengths = [high - low + 1 for low, high in bounds]
        if min(lengths) < 1:
            raise _upside_down()
        room = prod(lengths)
        if room > len(items):
            raise _too_small()
        return Shaped(tuple(items[:room]), tuple(lengths), tuple(low for low, _ in bounds))
    if len(bounds) > array.dimensions:
        raise _wrong_number()
    ranges = []
    for i, (length, low) in enumerate(zip(array.lengths, array.lowest, strict=True)):
        first, last = bounds[i] if i < len(bounds) else (LEAST, MOST)
        first = low if first == LEAST else first
        last = low + length - 1 if last == MOST else last
        if first > last:
            raise _upside_down()
        if array.dimensions > 1 and not (low <= first and last < low + length):
            raise _out_of_range()
        ranges.append(range(first - low, last - low + 1))
    room = prod(map(len, ranges))
    if room > len(items):
        raise _too_small()
    if array.dimensions == 1:
        low = array.lowest[0]
        return _with_range(array, ranges[0].start + low, ranges[0].stop - 1 + low, items)
    places = [0]
    for length, chosen in zip(array.lengths, ranges, strict=True):
        places = [place * length + step for place in places for step in chosen]
    data = list(array.items)
    for place, item in zip(places, items, strict=False):
        data[place] = item
    return array._replace(items=tuple(data))


def _with_range(array: Shaped, first: int, last: int, items: Sequence[Datum]) -> Shaped:
    """Return an array of one dimension with other elements, NULL in places between."""
    (length,), (low,) = array.lengths, array.lowest
    start, stop = min(first, low), max(last, low + length - 1)
    if stop - start >= MOST_ITEMS:
        raise DataError("array size exceeds the maximum allowed (134217727)", sqlstate="54000")
    data: list[Datum] = [None] * (stop - start + 1)
    data[low - start : low - start + length] = array.items
    data[first - start : last - start + 1] = items[: last - first + 1]
    return Shaped(tuple(data), (len(data),), (start,))


def _ragged() -> DataError:
    return DataError(
        "multidimensional arrays must have array expressions with matching dimensions",
        sqlstate="2202E",
    )


def _wrong_number() -> DataError:
    return DataError("wrong number of array subscripts", sqlstate="2202E")


def _out_of_range() -> DataError:
    return DataError("array subscript out of range", sqlstate="2202E")


def _upside_down() -> DataError:
    return DataError("upper bound cannot be less than lower bound", sqlstate="2202E")


def _too_small() -> DataError:
    return DataError("source array too small", sqlstate="2202E")


def filled(value: Datum, lengths: Sequence[int], lowest: Sequence[int]) -> Shaped:
    """Return the array of one value in all places."""
    count = prod(lengths) if lengths else 0
    return Shaped((value,) * count, tuple(lengths), tuple(lowest)) if count else EMPTY


def from_rows(rows: list[Any], depth: int | None = None) -> Shaped:
    """Return the array of lists of lists, as deep as the first ones or of `depth`.

    Raises DataError if lists side by side are not of one length.
    """
    lengths: list[int] = []
    first: Any = rows
    while isinstance(first, list) and (depth is None or len(lengths) < depth):
        lengths.append(len(first))
        first = first[0] if first else None
    if len(lengths) > MAX_DIMENSIONS:
        raise too_many_dimensions(len(lengths))
    items: list[Any] = [rows]
    for length in lengths:
        if any(not isinstance(each, list) or len(each) != length for each in items):
            raise _ragged()
        items = [item for each in items for item in each]
    if items and depth is not None and len(lengths) < depth:  # a list is NULL
        raise _ragged()
    return Shaped(tuple(items), tuple(lengths), (1,) * len(lengths)) if items else EMPTY


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


def too_many_dimensions(count: int = MAX_DIMENSIONS + 1) -> DataError:
    """Return the error of an array of so many dimensions."""
    return DataError(
        f"number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})",
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
            raise _upside_down()
        if len(lowest) == MAX_DIMENSIONS:
            raise too_many_dimensions()
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
        raise too_many_dimensions()
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
