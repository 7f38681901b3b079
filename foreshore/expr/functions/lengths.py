"""How long results get, known before they are made: of all functions that make longer values.

`repeat('x', 1000000000)` would fill the memory before anybody could stop it. So `apply` adds up the
lengths that the arguments ask for, and refuses what the query may not hold (`require_room`). An
upper bound is enough where it is close; where it may be far off, the rows are looked at one by one.

`UNKNOWN` names the functions whose lengths only their work would show. They are held by the limit
of the process that evaluates what `foreshore/expr/cost.py` calls heavy.
"""

import re
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.digits import is_digits
from foreshore.query_memory import has_limited_room, may_make, require_room
from foreshore.shaped import MOST_ITEMS, lowest_of

Arrays = Sequence[pa.Array]

MAX_BYTES = 1_073_741_819  # of a value; kernels refuse longer ones with an error of the row
PLACE = 16  # bytes of an element that is NULL
OBJECT = 64  # bytes of an element that kernels make in Python
SPECIFIER = re.compile(r"%(?:%|(?:(\d{1,10})\$)?-*(\d{0,10})([a-zA-Z]))")

UNKNOWN = frozenset(
    ("regexp_replace", "regexp_matches", "regexp_split_to_array", "regexp_split_to_table")
)


def require_room_for(name: str, arrays: Arrays) -> None:
    """Raise OutOfMemory if a call's results are longer than what the query may hold."""
    length = LENGTHS.get(name)
    if length is not None and arrays and has_limited_room():
        require_room(length(arrays))


def length_in_bytes(text: str) -> int:
    """Return the length of a text as it is stored, in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def _bytes(array: pa.Array) -> np.ndarray:
    """Return the length of each value in bytes, 0 for NULL."""
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return np.asarray(pc.binary_length(array).fill_null(0)).astype(float)
    return np.full(len(array), array.nbytes / max(len(array), 1))


def _numbers(array: pa.Array) -> np.ndarray:
    """Return integers, 0 in place of NULL and of negative ones."""
    numbers: np.ndarray = np.maximum(np.asarray(array.fill_null(0)).astype(float), 0)
    return numbers


def _sum(lengths: np.ndarray) -> int:
    """Return the sum of lengths, but for those of values that kernels refuse, of more than 1 GB."""
    return int(lengths[lengths <= MAX_BYTES].sum())


def _repeated(arrays: Arrays) -> int:
    return _sum(_bytes(arrays[0]) * _numbers(arrays[1]))


def _padded(arrays: Arrays) -> int:
    width = 1
    if len(arrays) > 2:
        letters = np.asarray(pc.utf8_length(arrays[2]).fill_null(0)).astype(float)
        width = int(np.max(np.ceil(_bytes(arrays[2]) / np.maximum(letters, 1)), initial=1))
    return _sum(np.maximum(_bytes(arrays[0]), width * _numbers(arrays[1])))


def _replaced(arrays: Arrays) -> int:
    text, old, new = map(_bytes, arrays[:3])
    most = int((text + text / np.maximum(old, 1) * new).sum())
    if may_make(most):
        return most
    rows = zip(*(array.to_pylist() for array in arrays[:3]), strict=True)
    exact = [
        length_in_bytes(a) + (a.count(b) * (length_in_bytes(c) - length_in_bytes(b)) if b else 0)
        for a, b, c in rows
        if None not in (a, b, c)
    ]
    return _sum(np.array(exact, float))


def _added(arrays: Arrays) -> int:
    return sum(int(array.nbytes) for array in arrays)


def _joined_by(arrays: Arrays) -> int:
    return _added(arrays[1:]) + len(arrays) * int(_bytes(arrays[0]).sum())


def _listed(arrays: Arrays) -> int:
    """Return the length of the elements of lists, or what stands for NULL, and of separators."""
    lists = arrays[0]
    if not pa.types.is_list(lists.type):  # of any shape: of so many bytes and fewer elements
        return _added(arrays[:1]) + sum(int(np.dot(_bytes(lists), _bytes(b))) for b in arrays[1:])
    length = _added(arrays[:1]) + int(np.dot(_counts(lists), _bytes(arrays[1])))
    if len(arrays) > 2 and lists.flatten().null_count:
        nulls = _counted(lists, lambda items, rows: items.is_null())
        length += int(np.dot(nulls, _bytes(arrays[2])))
    return length


def _counted(lists: pa.Array, test: Callable[[pa.Array, pa.Array], pa.Array]) -> np.ndarray:
    """Return for how many elements of each list a test of elements and their rows is TRUE."""
    rows = np.repeat(np.arange(len(lists)), _counts(lists).astype(int))
    found = test(lists.flatten(), pa.array(rows)).fill_null(False)
    return np.bincount(rows[np.asarray(found)], minlength=len(lists)).astype(float)


def _counts(lists: pa.Array) -> np.ndarray:
    """Return the number of elements of each list."""
    return np.asarray(lists.value_lengths().fill_null(0)).astype(float)


def _with_others(arrays: Arrays) -> int:
    """Return the length of lists in which each element that equals another gets a new value."""
    lists, old, new = arrays
    if not pa.types.is_list(lists.type):
        return _added(arrays[:1]) + int(np.dot(_bytes(lists), _bytes(new)))
    most = _added(arrays[:1]) + int(np.dot(_counts(lists), _bytes(new)))
    if may_make(most):
        return most
    counts = _counts(lists)
    if not pa.types.is_nested(old.type):  # else any element may be the one
        counts = _counted(lists, lambda items, rows: pc.equal(items, old.take(rows)))
    return _added(arrays[:1]) + int(np.dot(counts, _bytes(new)))


def _extended(arrays: Arrays) -> int:
    """Return the length of lists with an element at a place beyond the others."""
    places = _numbers(arrays[1])
    return _added(arrays) + int(PLACE * places[places <= MOST_ITEMS].sum())


def _extended_shapes(arrays: Arrays) -> int:
    """Return the length of arrays of any shape with elements beyond the others."""
    length = _added(arrays)
    data = arrays[0].to_pylist()
    for places in arrays[2:]:
        for datum, place in zip(data, places.to_pylist(), strict=True):
            low = lowest_of(datum) if datum else None
            distance = 0 if low is None or place is None else abs(place - low)
            length += PLACE * distance if distance <= MOST_ITEMS else 0
    return length


def _extended_document(arrays: Arrays) -> int:
    """Return the length of documents with an element at a place beyond the others."""
    steps = (step for path in arrays[1].to_pylist() for step in path or ())
    places = (int(step) for step in steps if step and len(step) <= 10 and is_digits(step))
    return _added(arrays) + sum(PLACE * place for place in places if place <= MOST_ITEMS)


def _formatted(arrays: Arrays) -> int:
    patterns = arrays[0]
    if not pa.types.is_string(patterns.type):
        return 0
    lengths = [_bytes(each).tolist() for each in arrays[1:]]
    return sum(
        _formatted_row(pattern or "", [each[row] for each in lengths])
        for row, pattern in enumerate(patterns.to_pylist())
    )


def _formatted_row(pattern: str, lengths: Sequence[float]) -> int:
    """Return the most that a pattern makes, which may name an argument again and again."""
    most, place = float(len(pattern.encode())), 0
    for position, width, kind in SPECIFIER.findall(pattern):
        if not kind:  # of %%
            continue
        place = int(position) if position else place + 1
        padded = int(width or 0)
        if not 0 < place <= len(lengths) or padded > MAX_BYTES:  # the kernel refuses it
            break
        length = lengths[place - 1]
        most += max(length if kind == "s" else 2 * length + OBJECT, padded)
    return int(most)


def _filled(arrays: Arrays) -> int:
    sizes = _bytes(arrays[0])
    counts = (prod(max(n or 0, 0) for n in each or (0,)) for each in arrays[1].to_pylist())
    return int(sum(count * max(size, 1) for count, size in zip(counts, sizes, strict=True)))


def _series(arrays: Arrays) -> int:
    if not all(pa.types.is_integer(array.type) for array in arrays):
        return 0  # of others there are no more than `arrays.MAX_ROWS`
    first, last = (np.asarray(each.fill_null(0)).astype(float) for each in arrays[:2])
    step = np.asarray(arrays[2].fill_null(1)).astype(float) if len(arrays) > 2 else 1.0
    counts = np.floor((last - first) / np.where(step == 0, 1.0, step)) + 1
    return int(8 * np.maximum(counts, 0).sum())


def _split(arrays: Arrays) -> int:
    text, separator = _bytes(arrays[0]), _bytes(arrays[1])
    most = int((text + OBJECT * (1 + text / np.maximum(separator, 1))).sum())
    if may_make(most):
        return most
    rows = zip(arrays[0].to_pylist(), arrays[1].to_pylist(), strict=True)
    return sum(
        len(a) + OBJECT * (1 + (a.count(b) if b else len(a))) for a, b in rows if a is not None
    )


def _indented(arrays: Arrays) -> int:
    """Return the length of documents of which each value begins a line."""
    size = 0
    for document in arrays[0].to_pylist():
        depth = 0
        for piece in re.findall(r"[\[{]|[\]}]|,", document or ""):
            depth += 1 if piece in "[{" else -1 if piece in "]}" else 0
            size += 1 + 4 * depth
    return size + _added(arrays)


LENGTHS: dict[str, Callable[[Arrays], int]] = {
    "repeat": _repeated,
    "lpad": _padded,
    "rpad": _padded,
    "replace": _replaced,
    "||": _added,
    "concat": _added,
    "concat_ws": _joined_by,
    "array_to_string": _listed,
    "array_replace": _with_others,
    "array_assigned": _extended,
    **dict.fromkeys(("shaped_assigned", "shaped_slice_assigned"), _extended_shapes),
    "jsonb_assigned": _extended_document,
    "format": _formatted,
    "array_fill": _filled,
    "array_cat": _added,
    "generate_series": _series,
    "jsonb_pretty": _indented,
    "encode": lambda arrays: 4 * arrays[0].nbytes,
    "quote_literal": lambda arrays: 2 * arrays[0].nbytes,
    "string_to_array": _split,
    "string_to_table": _split,
}
