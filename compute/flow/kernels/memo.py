"""A hash table from numbers of the interner to places."""

import numpy as np

from foreshore.compute.flow.kernels.jit import kernel


@kernel
def look_up(ids, known, places, count, found):
    """Set the place of each number; return those that are new, which get places from `count` on.

    `known` has in each slot a number plus 1, or 0; `places` has the number's place. There is room.
    """
    mask = len(known) - 1
    new = np.empty(len(ids), np.int64)
    size = 0
    for i in range(len(ids)):
        id = ids[i]
        slot = ((id * 0x9E3779B1) >> 8) & mask
        while known[slot] != 0 and known[slot] != id + 1:
            slot = (slot + 1) & mask
        if known[slot] == 0:
            known[slot] = id + 1
            places[slot] = count + size
            new[size] = id
            size += 1
        found[i] = places[slot]
    return new[:size]
