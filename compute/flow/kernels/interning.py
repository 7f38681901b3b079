"""Kernels of the interner: a hash table of byte strings, each with a number."""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xBF58476D1CE4E5B9)
_C = np.uint64(0x94D049BB133111EB)


@inlined
def _hash(data, start, length, seed):
    value = seed ^ (np.uint64(length) * _A)
    whole = length // 8
    at = start
    for _ in range(whole):
        word = np.uint64(0)
        for byte in range(8):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        at += 8
        value = (value ^ word) * _B
        value ^= value >> np.uint64(29)
    word = np.uint64(0)
    for byte in range(length - 8 * whole):
        word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    value = (value ^ word) * _C
    value ^= value >> np.uint64(32)
    value *= _B
    return value ^ (value >> np.uint64(29))


@kernel
def intern(
    data, offsets, present, seed, arena, starts, lengths, hashes, table, used, count, adding, ids
):  # fmt: skip
    """Set the number of each byte string of a column.

    `data[offsets[i]:offsets[i + 1]]` is the i-th string where `present[i]`; others get 0. New ones
    are added to `arena` (`used` bytes so far), `starts`, `lengths`, `hashes` (`count` so far) and
    `table`, which have room for all, or get -1 if not `adding`. Returns (used, count).
    """
    mask = np.uint64(len(table) - 1)
    for i in range(len(ids)):
        ids[i] = 0
        if not present[i]:
            continue
        start = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - start
        hash = _hash(data, start, length, seed)
        slot = hash & mask
        while True:
            found = table[slot]
            if found == 0:
                break
            if hashes[found] == hash and lengths[found] == length:
                at = starts[found]
                same = True
                for byte in range(length):
                    if arena[at + byte] != data[start + byte]:
                        same = False
                        break
                if same:
                    break
            slot = (slot + np.uint64(1)) & mask
        if found == 0 and not adding:
            ids[i] = -1
            continue
        if found == 0:
            found = count
            table[slot] = found
            starts[found] = used
            lengths[found] = length
            hashes[found] = hash
            for byte in range(length):
                arena[used + byte] = data[start + byte]
            used += length
            count += 1
        ids[i] = found
    return used, count


@kernel
def rehash(hashes, count, table):
    """Put the numbers 1 to `count` - 1 into an empty table of another size."""
    mask = np.uint64(len(table) - 1)
    for number in range(1, count):
        slot = hashes[number] & mask
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = number


@kernel
def total_length(ids, lengths):
    """Return the bytes of all strings with these numbers."""
    total = 0
    for i in range(len(ids)):
        total += lengths[ids[i]]
    return total


@kernel
def copy_strings(ids, arena, starts, lengths, offsets, data):
    """Write the strings with these numbers one after the other, with their offsets."""
    at = 0
    for i in range(len(ids)):
        offsets[i] = at
        start = starts[ids[i]]
        for byte in range(lengths[ids[i]]):
            data[at + byte] = arena[start + byte]
        at += lengths[ids[i]]
    offsets[len(ids)] = at
