"""The rows of a memo's input, told apart by what they are as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.python_functions.row_hashes import Words, row_hashes
from foreshore.storage.lake.columns import json_texts, texts
from foreshore.types import TEXT, RelationDesc, SqlType

KEY_BYTES = 16


def key_of(text: str) -> bytes:
    """Return the key of a row, given as JSON; it holds in this process only."""
    return keys_of(_words(pa.chunked_array([[text]], pa.string())))[0]


def keys_of(words: Words) -> list[bytes]:
    """Return keys, given as pairs of words."""
    data = words.tobytes()
    return [data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)]


def words_of(keys: Sequence[bytes]) -> Words:
    """Return keys as pairs of words."""
    return np.frombuffer(b"".join(keys), np.uint64).reshape(-1, 2)


def _words(texts: pa.ChunkedArray) -> Words:
    """Return the keys of rows, given as JSON, as pairs of words."""
    found = [np.zeros((0, 2), np.uint64)]
    for chunk in texts.chunks:
        hashes = row_hashes([chunk])
        assert hashes is not None, chunk.type
        found.append(np.column_stack(hashes))
    return np.concatenate(found)


def row_texts(rows: pa.Table, desc: RelationDesc) -> pa.ChunkedArray:
    """Return each row as a JSON array; the first columns of `rows` are those of `desc`."""
    if not desc.names:
        return pa.chunked_array([pa.array(["[]"] * rows.num_rows, pa.string())])
    found = []
    for batch in rows.combine_chunks().to_batches():
        pieces: list[pa.Array | str] = []
        for place, column in enumerate(desc.columns):
            pieces += ["," if place else "[", _value_texts(batch.column(place), column.type)]
        found.append(pc.binary_join_element_wise(*pieces, "]", ""))
    return pa.chunked_array(found, pa.string())


def _value_texts(column: pa.Array, type: SqlType) -> pa.Array:
    """Return values as JSON, of which no two are alike.

    Documents have a space before them, so that `null` is another one than NULL. A value that has
    no JSON, such as an infinite time, is a string.
    """
    found = json_texts(column, type)
    if type.name in ("json", "jsonb"):
        return pc.if_else(column.is_valid(), pc.binary_join_element_wise("", found, " "), found)
    lost = pc.and_(column.is_valid(), pc.equal(found, "null"))
    if not pc.any(lost).as_py():
        return found
    return pc.if_else(lost, json_texts(texts(column, type), TEXT), found)


def row_words(rows: pa.Table, desc: RelationDesc) -> Words:
    """Return the key of each row, as a pair of words."""
    return _words(row_texts(rows, desc))


@dataclass(frozen=True, slots=True)
class NetRows:
    """Distinct rows, and by how many copies each has become more."""

    rows: pa.Table
    texts: Sequence[str]
    keys: Sequence[bytes]
    nets: Sequence[int]


def net_rows(updates: Sequence[pa.Table], desc: RelationDesc) -> NetRows:
    """Return what updates come to over all their times; rows without a change are left out.

    The first columns are those of `desc`, the last one says how many copies are added.
    """
    whole = pa.concat_tables(
        [each.rename_columns([str(at) for at in range(each.num_columns)]) for each in updates]
    )
    numbered = pa.table(
        {
            "text": row_texts(whole, desc),
            "net": whole.column(whole.num_columns - 1),
            "at": pa.array(range(whole.num_rows), pa.int64()),
        }
    )
    grouped = numbered.group_by("text", use_threads=False).aggregate(
        [("net", "sum"), ("at", "min")]
    )
    grouped = grouped.filter(pc.not_equal(grouped.column("net_sum"), 0))
    rows = whole.select(range(len(desc.names))).take(grouped.column("at_min"))
    rows = rows.rename_columns(list(desc.names))
    texts = grouped.column("text")
    keys = keys_of(_words(texts))
    return NetRows(rows, texts.to_pylist(), keys, grouped["net_sum"].to_pylist())
