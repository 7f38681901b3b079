"""Hashes of single rows and datums equal those of columns."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from foreshore.compute.arrange.key import hash_columns, hash_words, key_words
from foreshore.datum import to_array
from foreshore.types import BYTEA, INT4, TEXT

TYPES = [INT4, TEXT, BYTEA]

rows = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**31), 2**31 - 1),
        st.none() | st.text(max_size=90),
        st.none() | st.binary(max_size=90),
    ),
    min_size=1,
    max_size=6,
)


@given(rows)
def test_single_row_hash_equals_column_hash(rows: list[tuple[int, str, bytes]]) -> None:
    columns: list[pa.Array] = [
        to_array([row[i] for row in rows], type) for i, type in enumerate(TYPES)
    ]
    for types in (None, TYPES):
        together = hash_columns(columns, types, len(rows)).tolist()
        alone = [
            hash_columns([column.slice(i, 1) for column in columns], types, 1)[0]
            for i in range(len(rows))
        ]
        assert alone == together
    for row, hash in zip(rows, hash_columns(columns, TYPES, len(rows)).tolist(), strict=True):
        words = key_words(row, TYPES)
        assert words is None if None in row else hash_words(words or ()) == hash
