"""Keys that a statement names, with arguments and session values put in.

    (1, $1), (2, ANY($2))  with $1 = 5 and $2 = {7, 8, NULL}    (1, 5), (2, 7), (2, 8)

Keys with NULL and values out of the key's range equal nothing and are left out. Few keys are bound
one by one, many as columns. What a key computes may fail, which is the statement's error.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.key import hash_columns, key_words
from foreshore.datum import to_array
from foreshore.errors import DataError
from foreshore.expr.equality import is_plain
from foreshore.expr.evaluate import constant, outcome
from foreshore.expr.ir import Literal
from foreshore.expr.keys import Constant, Elements, Key
from foreshore.expr.scalars import Replace, bind_scalar
from foreshore.number_text import INTEGERS
from foreshore.table_rows import Row
from foreshore.types import Datum, SqlType, arrow_type

LiteralKeys: TypeAlias = tuple[tuple[Literal, ...], ...]
KeyColumns: TypeAlias = list[pa.Array]

LARGE = 5000  # keys from which on binding does not belong on the event loop
MOST_COMBINED = 10_000  # keys that combine elements of arrays with other values


def is_large(keys: Sequence[Key], bindings: Replace, most: int = LARGE) -> bool:
    """Whether there are more than `most` keys, each combination of elements being one."""
    return len(keys) > most or _count(keys, bindings)[0] > most


def are_too_many(keys: Sequence[Key], bindings: Replace) -> bool:
    """Whether arrays multiply to more keys than should be looked up.

    Any number is looked up that is written out, in the statement or in one array.
    """
    count, written = _count(keys, bindings)
    return count > max(MOST_COMBINED, written)


def _count(keys: Sequence[Key], bindings: Replace) -> tuple[int, int]:
    """Return the number of keys, and the number of values of which they are made.

    Elements that are in several of `keys` are counted as values once.
    """
    count = 0
    lengths: dict[int, int] = {}  # by the identity of `Elements`
    for key in keys:
        product = 1
        for part in key:
            if isinstance(part, Elements):
                if id(part) not in lengths:
                    lengths[id(part)] = _length(part, bindings)
                product *= lengths[id(part)]
        count += product
    return count, len(keys) + sum(lengths.values())


def _length(part: Elements, bindings: Replace) -> int:
    """Return the number of elements, if they are a literal or an argument below casts."""
    array = part.array
    while not isinstance(array, Literal):
        bound = bindings(array)
        if bound is not None:
            array = bound
            continue
        (array,) = array.args  # type: ignore[union-attr]
    return 0 if array.value is None else len(array.value)


def key_columns(
    keys: Sequence[Key],
    types: Sequence[SqlType],
    bindings: Replace,
    more: Sequence[Sequence[pa.Array]] = (),
) -> KeyColumns:
    """Return `keys`, and those in the columns of `more`, each once, as columns of `types`."""
    plain = [key for key in keys if not any(isinstance(part, Elements) for part in key)]
    parts = [
        [_of_type(column, type) for column, type in zip(columns, types, strict=True)]
        for columns in more
    ]
    if plain:
        parts.append(_columns(plain, types, bindings))
    if len(plain) < len(keys):
        parts += [
            _product(key, types, bindings)
            for key in keys
            if any(isinstance(part, Elements) for part in key)
        ]
    columns = [pa.concat_arrays(same) for same in zip(*parts, strict=True)]
    if not columns:
        return [pa.array([], arrow_type(type)) for type in types]
    if any(column.null_count for column in columns):
        table = pa.table(columns, names=[str(i) for i in range(len(columns))]).drop_null()
        columns = [column.combine_chunks() for column in table.columns]
    if len(columns[0]) > 1:
        hashes = hash_columns(columns, types, len(columns[0]))
        _, firsts = np.unique(hashes, return_index=True)
        if len(firsts) < len(hashes):
            columns = [column.take(pa.array(np.sort(firsts))) for column in columns]
    return columns


def _columns(keys: Sequence[Key], types: Sequence[SqlType], bindings: Replace) -> KeyColumns:
    """Return keys of single values as columns; NULL is what equals nothing."""
    parts = zip(zip(*keys, strict=True), types, strict=True)
    return [to_array([_value(each, type, bindings) for each in part], type) for part, type in parts]


def columns_of_keys(keys: Sequence[Row], types: Sequence[SqlType]) -> KeyColumns:
    """Return keys without NULL as columns, without those that are out of range."""
    kept = [key for key in keys if all(map(is_in_range, key, types))]
    return [to_array([key[i] for key in kept], type) for i, type in enumerate(types)]


def _value(part: Constant | Elements, type: SqlType, bindings: Replace) -> Datum:
    """Return a part of a key as a value of `type`; None if it is out of its range."""
    assert not isinstance(part, Elements)
    value: Datum = _literal(part, bindings).value
    return value if is_in_range(value, type) else None


def is_in_range(value: Datum, type: SqlType) -> bool:
    """Whether an integer of any type is one of `type`."""
    if not isinstance(value, int) or type.name not in INTEGERS:
        return True
    low, high = INTEGERS[type.name]
    return low <= value <= high


def _product(key: Key, types: Sequence[SqlType], bindings: Replace) -> KeyColumns:
    """Return one key's combinations of values and elements of arrays."""
    values = []
    for part, type in zip(key, types, strict=True):
        if isinstance(part, Elements):
            values.append(_elements(part, type, bindings))
        else:
            values.append(to_array([_value(part, type, bindings)], type))
    rows = 1
    columns: KeyColumns = []
    for array in values:
        count = len(array)
        before, after = np.repeat(np.arange(rows), count), np.tile(np.arange(count), rows)
        columns = [column.take(pa.array(before)) for column in columns]
        columns.append(array.take(pa.array(after)))
        rows *= count
    return columns


def _elements(part: Elements, type: SqlType, bindings: Replace) -> pa.Array:
    """Return the elements that values of `type` may equal."""
    array = bind_scalar(part.array, bindings)
    if isinstance(array, Literal):
        values = to_array(array.value or (), part.type)
    else:
        lists, errors = outcome(array, (), 1)
        if errors is not None and errors.null_count < len(errors):
            raise DataError.parse(errors[0].as_py())
        values = lists.flatten()
    return _of_type(values.drop_null(), type)


def _of_type(values: pa.Array, type: SqlType) -> pa.Array:
    """Return values that are comparable with `type` in that type; NULL if out of range."""
    wanted = arrow_type(type)
    if values.type == wanted:
        return values
    if pa.types.is_integer(wanted):
        bound = 2 ** (wanted.bit_width - 1)
        least, most = (pa.scalar(each, pa.int64()) for each in (-bound, bound - 1))
        wide = values.cast(pa.int64())
        fits = pc.and_(pc.greater_equal(wide, least), pc.less_equal(wide, most))
        return pc.if_else(fits, wide, pa.scalar(None, pa.int64())).cast(wanted)
    return values.cast(wanted)


# --- one by one ----------------------------------------------------------------------------


def literal_keys(keys: Iterable[Key], bindings: Replace) -> LiteralKeys:
    """Return `keys`, each once, as literals."""
    keys = tuple(keys)
    only = keys[0][0] if len(keys) == 1 and len(keys[0]) == 1 else None
    if isinstance(only, Elements) and is_plain(only.type):  # equal in Python: the same key
        elements = _element_literals(only, bindings)
        return tuple([(each,) for each in elements if each.value is not None])
    found: dict[tuple[int, ...], tuple[Literal, ...]] = {}
    for key in keys:
        for literals in _literals(key, bindings):
            words = key_words([each.value for each in literals], [each.type for each in literals])
            if words is not None:
                found.setdefault(words, tuple(literals))
    return tuple(found.values())


def _literals(key: Key, bindings: Replace) -> list[list[Literal]]:
    """Return the combinations of the parts' values."""
    combined: list[list[Literal]] = [[]]
    for part in key:
        if isinstance(part, Elements):
            choices = _element_literals(part, bindings)
        else:
            choices = [_literal(part, bindings)]
        combined = [[*before, each] for before in combined for each in choices]
    return combined


def _element_literals(part: Elements, bindings: Replace) -> list[Literal]:
    array = bind_scalar(part.array, bindings)
    bound = array if isinstance(array, Literal) else constant(array)
    assert isinstance(bound, Literal), bound
    return [Literal(each, part.type) for each in dict.fromkeys(bound.value or ())]


def _literal(part: Constant, bindings: Replace) -> Literal:
    """Return the value of a part of a key."""
    value = part if isinstance(part, Literal) else bindings(part)
    assert isinstance(value, Literal), part
    return value
