"""Words by their addresses.

A kernel that reads many arrays in turns, as those of the runs of a spine, gets their addresses: an
array that is taken from a tuple costs two atomic counts at each access. The caller keeps the arrays
alive, which have to be contiguous.
"""

import ctypes

from foreshore.compute.flow.kernels.jit import UNCOMPILED, inlined
from foreshore.compute.flow.kernels.rows import compare_texts

if UNCOMPILED:

    def word_at(address):
        """Return the word at an address."""
        return ctypes.c_int64.from_address(int(address)).value
else:
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic
    def word_at(context, address):
        """Return the word at an address."""

        def load(context, builder, signature, args):
            return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

        return types.int64(types.int64), load


@inlined
def compare_rows_at(a, b, texts, arena, starts, lengths):
    """Return -1, 0 or 1: the order of the rows at two addresses, as `rows.compare_rows` does."""
    for k in range(len(texts)):
        x, y = word_at(a + 8 * k), word_at(b + 8 * k)
        if x != y:
            if texts[k] == 0:
                return -1 if x < y else 1
            order = compare_texts(x, y, arena, starts, lengths) * texts[k]
            if order != 0:
                return order
    return 0


@inlined
def same_words_at(a, b, width):
    """Whether the first words of the rows at two addresses are equal."""
    for k in range(width):
        if word_at(a + 8 * k) != word_at(b + 8 * k):
            return False
    return True
