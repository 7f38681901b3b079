"""A kernel that finds the rows that may have an equal one, without comparing any."""

import numpy as np

from foreshore.compute.flow.kernels.jit import kernel

SLOTS = 16  # for each row; about one row in as many shares a slot by chance


@kernel
def may_have_equal(hashes):
    """Return the places of the rows whose hashes share a slot with another's, in order.

    A slot has two bits, which count its rows up to two, so that the table stays in the caches.
    """
    size = 64
    while size < SLOTS * len(hashes):
        size *= 2
    mask = np.uint64(size - 1)
    table = np.zeros(size // 4, np.uint8)
    two, three = np.uint64(2), np.uint64(3)
    for i in range(len(hashes)):
        slot = hashes[i] & mask
        byte, shift = slot >> two, (slot & three) << np.uint64(1)
        if (np.uint64(table[byte]) >> shift) & three < two:
            table[byte] = np.uint8(np.uint64(table[byte]) + (np.uint64(1) << shift))
    found = np.empty(len(hashes), np.int64)
    count = 0
    for i in range(len(hashes)):
        slot = hashes[i] & mask
        byte, shift = slot >> two, (slot & three) << np.uint64(1)
        if (np.uint64(table[byte]) >> shift) & three == two:
            found[count] = i
            count += 1
    return found[:count]
