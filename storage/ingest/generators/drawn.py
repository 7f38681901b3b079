"""Numbers and columns that are made up, the same in each run."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foreshore.update import DIFF

Numbers = npt.NDArray[np.int64]
BEGIN_US = 1_700_000_000_000_000  # the time of tick 0; each is a second after the one before
TIME = pa.timestamp("us", "UTC")


def drawn(numbers: Numbers, purpose: int) -> Numbers:
    """Return a number below 2^31 for each of `numbers`, by the mixer of splitmix64."""
    with np.errstate(over="ignore"):
        z = (numbers.astype(np.uint64) * np.uint64(64) + np.uint64(purpose)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z >> np.uint64(33)).astype(np.int64)


def times(micros: Numbers) -> pa.Array:
    """Return times by their microseconds since 1970."""
    return pa.array(micros, pa.int64()).cast(TIME)


def picked(words: tuple[str, ...], numbers: Numbers) -> pa.Array:
    """Return one of the words for each number."""
    return pa.array(words, pa.string()).take(pa.array(numbers % len(words)))


def numbered(prefix: str, numbers: Numbers, width: int = 9) -> pa.Array:
    """Return the numbers as text after a prefix, with zeros before them."""
    digits = np.char.zfill(numbers.astype(str), width)
    return pa.array(np.char.add(prefix, digits))


def cents(numbers: Numbers) -> pa.Array:
    """Return hundredths as decimals with two digits after the point."""
    words = np.empty((len(numbers), 2), np.int64)
    words[:, 0], words[:, 1] = numbers, numbers >> 63
    buffer = pa.py_buffer(words.tobytes())
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(numbers), [None, buffer])


def rows(diffs: Numbers | None = None, /, **columns: object) -> pa.Table:
    """Return rows, each with multiplicity one unless it is given."""
    table = pa.table(
        {name: v if isinstance(v, pa.Array) else pa.array(v) for name, v in columns.items()}
    )
    given = np.ones(table.num_rows, dtype=np.int64) if diffs is None else diffs
    return table.append_column(DIFF, pa.array(given, pa.int64()))
