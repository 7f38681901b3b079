"""Peers: the workers that keep one dataflow together, each a share of its rows.

All peers run the same operators in the same order over their own updates. Where an operator needs
all rows of a key in one place, the rows go to the worker that owns the key, by its hash. A call
here is *collective*: each peer makes the same calls in the same order, and a call returns when
every other peer has made it for the same window. So an operator must not decide by its own rows
whether to call; it decides by `totals`.

The owner of a key is found by its values, as each worker has an interner of its own.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from foreshore.compute.flow.batch import Batch, Ints, Words
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import rows
from foreshore.compute.flow.layout import Layout, Place
from foreshore.expr.ir import LetRec, Relation
from foreshore.expr.traversal import walk_relations

# Hash tables of a worker take places by the hashes of the same keys, so the owner comes of another.
_SALT = 0x5851F42D4C957F2D
_WORDS_64 = (1 << 64) - 1


class Peers(Protocol):
    """The workers of a dataflow, as one of them sees them. Calls are collective."""

    index: int
    count: int

    @property
    def owns_empty_key(self) -> bool:
        """Whether this worker owns the key without columns; not collective."""
        ...

    def route(self, batch: Batch, strings: Ints, keys: Words, key_strings: Ints) -> Batch:
        """Send each update to the owner of its key; return those that came here.

        `strings` and `key_strings` are the places of interned strings in words and keys.
        """
        ...

    def broadcast(self, batch: Batch, strings: Ints) -> Batch:
        """Return the updates of all peers."""
        ...

    def totals(self, numbers: Sequence[int]) -> list[int]:
        """Return the sums of all peers' numbers."""
        ...

    def agree(self) -> None:
        """Return when all peers have computed the window; raises if one has failed."""
        ...


class NoPeers:
    """One of `count` workers of a dataflow that is described and never run."""

    index = 0
    owns_empty_key = True

    def __init__(self, count: int) -> None:
        self.count = count

    def route(self, batch: Batch, strings: Ints, keys: Words, key_strings: Ints) -> Batch:
        """Raise, because nothing is run."""
        raise AssertionError("a described dataflow is not run")

    def broadcast(self, batch: Batch, strings: Ints) -> Batch:
        """Raise, because nothing is run."""
        raise AssertionError("a described dataflow is not run")

    def totals(self, numbers: Sequence[int]) -> list[int]:
        """Raise, because nothing is run."""
        raise AssertionError("a described dataflow is not run")

    def agree(self) -> None:
        """Raise, because nothing is run."""
        raise AssertionError("a described dataflow is not run")


def can_be_shared(relation: Relation) -> bool:
    """Whether workers can share a plan; else one of them maintains it with all that it reads.

    The iterations of a recursion cannot be shared.
    """
    return not any(isinstance(node, LetRec) for node in walk_relations(relation))


@lru_cache(4096)
def strings_in(places: tuple[Place, ...]) -> Ints:
    """Return the words of columns that are interned strings."""
    words = [place.word for place in places if place.kind in ("bytes", "value")]
    return np.array(words, np.int64)


def strings_of(layout: Layout) -> Ints:
    """Return the words of a layout that are interned strings."""
    return strings_in(layout.places)


def owners(keys: Words, strings: Ints, interner: Interner, seed: int, count: int) -> Ints:
    """Return the worker, of `count`, that owns each key."""
    keys = np.ascontiguousarray(keys)
    if len(strings):
        keys = keys.copy()
        for place in strings:
            keys[:, place] = interner.hashes_of(keys[:, place]).view(np.int64)
    hashes = np.empty(len(keys), np.uint64)
    salted = np.uint64((seed ^ _SALT) & _WORDS_64)
    rows.hash_keys(keys, keys.shape[1], salted, hashes)
    return (hashes % np.uint64(count)).astype(np.int64)


def owner_of_empty_key(seed: int, count: int) -> int:
    """Return the worker that owns the key without columns, as `owners` does."""
    return int(((seed ^ _SALT) & _WORDS_64) % count)
