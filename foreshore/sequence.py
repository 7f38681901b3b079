"""Sequences: computes the numbers that a sequence returns.

A `Position` is the number returned last, or the first one to return if there was none.

    >>> numbers(Sequence(increment=5, maximum=12), Position(1, called=False), 3)
    (array([ 1,  6, 11]), Position(last=11, called=True))
"""

from dataclasses import dataclass
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt

from foreshore.errors import SequenceLimitExceeded
from foreshore.types import INT8, SqlType

# When an identity column takes its value from its sequence; or a column computed from others.
Generated = OneOf["always", "by default", "stored"]
Numbers = npt.NDArray[np.int64]

BOUNDS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}  # of the possible types of a sequence


@dataclass(frozen=True, slots=True)
class Sequence:
    """The parameters of CREATE SEQUENCE; `minimum` and `maximum` are numbers of `type`."""

    type: SqlType = INT8
    start: int = 1
    increment: int = 1
    minimum: int = 1
    maximum: int = 2**63 - 1
    cache: int = 1
    cycle: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """The number returned last; if not `called`, the next one is `last` itself."""

    last: int
    called: bool


def left(sequence: Sequence, at: Position) -> int:
    """Return how many numbers remain from `at` to the end, before any cycle."""
    limit = sequence.maximum if sequence.increment > 0 else sequence.minimum
    return max((limit - at.last) // sequence.increment, -1) + (not at.called)


def numbers(
    sequence: Sequence, at: Position, count: int, name: str = ""
) -> tuple[Numbers, Position]:
    """Return the next `count` (at least one) numbers, and the position after them.

    Raises 2200H if there are not enough; `name` is the sequence's name in the message.
    """
    parts: list[Numbers] = []
    while count:
        there = min(left(sequence, at), count)
        if there <= 0:
            if not sequence.cycle:
                end, word = (
                    (sequence.maximum, "maximum")
                    if sequence.increment > 0
                    else (sequence.minimum, "minimum")
                )
                raise SequenceLimitExceeded(
                    f'nextval: reached {word} value of sequence "{name}" ({end})'
                )
            first = sequence.minimum if sequence.increment > 0 else sequence.maximum
            at = Position(first, called=False)
            continue
        first = at.last + sequence.increment if at.called else at.last
        last = first + sequence.increment * (there - 1)
        parts.append(first + np.int64(sequence.increment) * np.arange(there, dtype=np.int64))
        at = Position(last, called=True)
        count -= there
    return parts[0] if len(parts) == 1 else np.concatenate(parts), at
