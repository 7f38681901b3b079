"""Updates are sorted by the hash of their key, then by all words, each in its own order."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import rows
from tests.effort import examples

# Some are equal in their first eight bytes, or but for zeros at the end.
STRINGS = [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefghi", b"abcdefgh\0", b"\xff" * 9, b"b"]


@settings(max_examples=examples(100))
@given(
    st.integers(0, 600),
    st.sampled_from([1, 3, 50]),
    st.sampled_from([(0, 0), (0, 1), (0, -1), (1, 0), (-1, 1)]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 1 << 32),
)
def test_order_is_by_hash_words_and_time(
    count: int, keys: int, orders: tuple[int, int], key: int, collide: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    interner = Interner()
    ids = interner.numbers(pa.array([*STRINGS, None], pa.binary()))
    texts = np.array([0, *orders], np.int64)
    words = np.empty((count, 3), np.int64)
    words[:, 0] = random.integers(0, keys, count)
    for k in (1, 2):
        few = random.integers(-2, 3, count)
        words[:, k] = few if texts[k] == 0 else ids[random.integers(0, len(ids), count)]
    times = random.integers(0, 4, count)
    hashes = np.empty(count, np.uint64)
    rows.hash_keys(words, key, np.uint64(seed), hashes)
    if collide:
        hashes >>= np.uint64(63)
    order = rows.sort_updates(
        hashes, words, times, texts, key, interner.arena, interner.starts, interner.lengths
    )
    assert sorted(order.tolist()) == list(range(count))
    text = dict(zip(ids.tolist(), [*STRINGS, b""], strict=True))
    rank = {each: i for i, each in enumerate(sorted(STRINGS))}

    def placed(i: int) -> tuple[int, ...]:
        by = [
            int(word) if how == 0 else how * rank[text[int(word)]]
            for word, how in zip(words[i], texts, strict=True)
        ]
        return (int(hashes[i]), *by, int(times[i]))

    placed_rows = [placed(i) for i in order]
    assert placed_rows == sorted(placed_rows)
