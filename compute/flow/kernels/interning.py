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


@inlined
def _class_of(length):
    """Return the class of a length: strings of one class have room for each other."""
    if length <= 64:
        return (length + 7) // 8
    bits = 6
    while (length - 1) >> (bits + 1):
        bits += 1
    return 9 + 8 * (bits - 6) + ((length - 1 - (1 << bits)) >> (bits - 3))


@inlined
def _room_of(length):
    """Return the bytes that a string takes: as many as the longest one of its class."""
    kind = _class_of(length)
    if kind <= 8:
        return 8 * kind
    bits = 6 + (kind - 9) // 8
    return (1 << bits) + ((kind - 9) % 8 + 1) * (1 << (bits - 3))


@kernel
def intern(
    data, offsets, present, seed, arena, starts, lengths, hashes, table, free, counts, adding, ids
):  # fmt: skip
    """Set the number of each byte string of a column.

    `data[offsets[i]:offsets[i + 1]]` is the i-th string where `present[i]`; others get 0. New ones
    are added to `arena`, `starts`, `lengths`, `hashes` and `table`, which have room for all, or get
    -1 if not `adding`. A new one takes the number and the bytes of a forgotten one of its class, if
    there is one: `free[class]` is such a number, `hashes` of it the next one, 0 for none.

    `counts` are the bytes of the arena and the numbers that were ever used, the strings that are
    there and their bytes, and those that have taken the number of a forgotten one.
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
            kind, room = _class_of(length), _room_of(length)
            found = free[kind]
            if found != 0:
                free[kind] = np.int64(hashes[found])
                counts[4] += 1
            else:
                found = counts[1]
                counts[1] += 1
                starts[found] = counts[0]
                counts[0] += room
            counts[2] += 1
            counts[3] += room
            table[slot] = found
            lengths[found] = length
            hashes[found] = hash
            at = starts[found]
            for byte in range(length):
                arena[at + byte] = data[start + byte]
        ids[i] = found


@kernel
def mark(words, lengths, marks):
    """Set the marks of the numbers in each column of `words` that may be one of strings.

    A column of strings has nothing but numbers of strings that are there, and 0. `lengths` are
    those of all numbers, less than 0 for those that were forgotten. Numbers beyond `marks` are
    left out.
    """
    rows, width = words.shape
    count = len(lengths)
    for k in range(width):
        is_possible = True
        for i in range(rows):
            word = words[i, k]
            if word < 0 or word >= count or lengths[word] < 0:
                is_possible = False
                break
        if is_possible:
            for i in range(rows):
                if words[i, k] < len(marks):
                    marks[words[i, k]] = 1


@kernel
def forget(begin, end, marks, lengths, hashes, table, free, counts):
    """Forget the strings with the numbers from `begin` to `end` that have no mark.

    They leave the table; those after them in their chains move up. After Knuth, "The Art of
    Computer Programming", volume 3, algorithm 6.4 R.
    """
    mask = np.uint64(len(table) - 1)
    for number in range(begin, end):
        if marks[number] != 0 or lengths[number] < 0:
            continue
        hole = hashes[number] & mask
        while table[hole] != number:
            hole = (hole + np.uint64(1)) & mask
        slot = hole
        while True:
            slot = (slot + np.uint64(1)) & mask
            other = table[slot]
            if other == 0:
                break
            # It may move into the hole if its chain begins there or before.
            if ((slot - hashes[other]) & mask) >= ((slot - hole) & mask):
                table[hole] = other
                hole = slot
        table[hole] = 0
        length = lengths[number]
        kind = _class_of(length)
        lengths[number] = -1 - length
        hashes[number] = np.uint64(free[kind])
        free[kind] = number
        counts[2] -= 1
        counts[3] -= _room_of(length)


@kernel
def rehash(lengths, hashes, count, table):
    """Put the numbers 1 to `count` - 1 that are in use into an empty table of another size."""
    mask = np.uint64(len(table) - 1)
    for number in range(1, count):
        if lengths[number] < 0:
            continue
        slot = hashes[number] & mask
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = number


@kernel
def restore(lengths, starts, hashes, table, free, counts):
    """Set all else of strings whose lengths and hashes were saved, by number."""
    counts[0], counts[1], counts[2], counts[3] = 0, len(lengths), 0, 0
    for number in range(1, len(lengths)):
        length = lengths[number]
        is_free = length < 0
        if is_free:
            length = -1 - length
        room = _room_of(length)
        starts[number] = counts[0]
        counts[0] += room
        if is_free:
            kind = _class_of(length)
            hashes[number] = np.uint64(free[kind])
            free[kind] = number
        else:
            counts[2] += 1
            counts[3] += room
    rehash(lengths, hashes, len(lengths), table)


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
