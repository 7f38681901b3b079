"""The random values of a session: unpredictable, or after `setseed` the same for the same seed."""

import os
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foreshore.errors import InvalidParameterValue

_MIXED = 0x9E3779B97F4A7C15  # so that neighbouring seeds differ in many bits


class RandomValues:
    """Makes the values of random() and gen_random_uuid()."""

    def __init__(self) -> None:
        self._seeded: np.random.Generator | None = None

    def seed(self, seed: float) -> None:
        """Let the values of random() follow from a seed between -1 and 1."""
        if not -1 <= seed <= 1:
            shown = "NaN" if seed != seed else f"{seed:g}"
            raise InvalidParameterValue(f"setseed parameter {shown} is out of allowed range [-1,1]")
        (bits,) = struct.unpack(">Q", struct.pack(">d", seed))
        self._seeded = np.random.default_rng(bits ^ _MIXED)

    def floats(self, count: int) -> npt.NDArray[np.float64]:
        """Return values from 0 on, below 1."""
        generator = self._seeded or np.random.default_rng()
        values: npt.NDArray[np.float64] = generator.random(count)
        return values

    def uuids(self, count: int, arrow: pa.DataType) -> pa.Array:
        """Return UUIDs of version 4, which no seed determines."""
        drawn: Any = np.frombuffer(os.urandom(16 * count), np.uint8).reshape(-1, 16).copy()
        drawn[:, 6] = drawn[:, 6] & 0x0F | 0x40  # version 4 of RFC 9562, section 5.4
        drawn[:, 8] = drawn[:, 8] & 0x3F | 0x80
        buffers = [None, pa.py_buffer(drawn.tobytes())]
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(drawn), buffers).cast(arrow)
