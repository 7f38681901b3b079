"""Sequences: which numbers one gives out, and what comes after what it has given.

A `Position` is where a sequence stands: the number given out last, or the one to be given out first
if none has been.

    >>> numbers(Sequence(increment=5, maximum=12), Position(1, called=False), 3)
    (array([ 1,  6, 11]), Position(last=11, called=True))
"""

from dataclasses import dataclass
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt

from foreshore.errors import SequenceLimitExceeded
from foreshore.types import INT8, SqlType

Generated = OneOf["always", "by default"]  # when an identity column has its value from its sequence
Numbers = npt.NDArray[np.int64]

BOUNDS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}  # of the types that a sequence may have


@dataclass(frozen=True, slots=True)
class Sequence:
    """What CREATE SEQUENCE says; `minimum` and `maximum` are numbers of `type`."""

    type: SqlType = INT8
    start: int = 1
    increment: int = 1
    minimum: int = 1
    maximum: int = 2**63 - 1
    cache: int = 1
    cycle: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """The number given out last; if it has not been `called`, the next one is `last` itself."""

    last: int
    called: bool


def left(sequence: Sequence, at: Position) -> int:
    """Return how many numbers there are from `at` to the end, before any cycle."""
    limit = sequence.maximum if sequence.increment > 0 else sequence.minimum
    return max((limit - at.last) // sequence.increment, -1) + (not at.called)


def numbers(
    sequence: Sequence, at: Position, count: int, name: str = ""
) -> tuple[Numbers, Position]:
    """Return the next `count` (at least one) numbers, and where the sequence stands after them.

    Raises 2200H if there are not so many, and `name` is what the message calls the sequence.
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
    return np.concatenate(parts), at
