"""Writing to rows in words."""

from typing import Any

import numpy as np

from foreshore.compute.flow.batch import Words
from foreshore.compute.flow.layout import Place


def put_null(words: Words, null: Any, place: Place) -> None:
    """Make a column NULL in the rows where `null` is set."""
    if null.any():
        word, bit = divmod(place.bit, 64)
        words[null, place.word : place.word + place.width] = 0
        words[null, word] |= np.int64(1) << np.int64(bit)
