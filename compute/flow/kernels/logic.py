"""Instructions of programs: comparison, logic, NULLs, and choice."""

from foreshore.compute.flow.kernels.jit import inlined
from foreshore.compute.flow.kernels.opcodes import (
    AND,
    COALESCE,
    DISTINCT,
    EQUAL,
    IS_NOT_NULL,
    IS_NULL,
    LESS,
    LESS_OR_EQUAL,
    NOT,
    NOT_EQUAL,
    OR,
    SELECT,
)
from foreshore.compute.flow.kernels.wide import less


@inlined
def decide(code, to, a, b, c, rows, low, high, null, error):
    """Run an instruction over the rows of a block."""
    if code <= DISTINCT:
        for i in range(rows):
            same = low[a, i] == low[b, i] and high[a, i] == high[b, i]
            if code == EQUAL:
                value = same
            elif code == NOT_EQUAL:
                value = not same
            elif code == LESS:
                value = less(low[a, i], high[a, i], low[b, i], high[b, i])
            elif code == LESS_OR_EQUAL:
                value = same or less(low[a, i], high[a, i], low[b, i], high[b, i])
            else:
                value = null[a, i] != null[b, i] or (not null[a, i] and not same)
            low[to, i] = value
            high[to, i] = 0
            null[to, i] = code != DISTINCT and (null[a, i] or null[b, i])
            error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
            if error[to, i] != 0:
                null[to, i] = True
    elif code == NOT:
        for i in range(rows):
            low[to, i] = 1 - low[a, i]
            high[to, i] = 0
            null[to, i] = null[a, i]
            error[to, i] = error[a, i]
    elif code == AND or code == OR:
        decisive = 1 if code == OR else 0
        for i in range(rows):
            x = not null[a, i] and error[a, i] == 0 and low[a, i] == decisive
            y = not null[b, i] and error[b, i] == 0 and low[b, i] == decisive
            decided = x or y
            failed = error[a, i] if error[a, i] != 0 else error[b, i]
            unknown = null[a, i] or null[b, i]
            high[to, i] = 0
            error[to, i] = 0 if decided else failed
            null[to, i] = not decided and (unknown or failed != 0)
            low[to, i] = decisive if decided else 1 - decisive
    elif code == IS_NULL or code == IS_NOT_NULL:
        for i in range(rows):
            low[to, i] = null[a, i] == (code == IS_NULL)
            high[to, i] = 0
            error[to, i] = error[a, i]
            null[to, i] = error[a, i] != 0
    elif code == SELECT or code == COALESCE:
        for i in range(rows):
            if code == SELECT:
                failed = error[a, i]
                pick = b if not null[a, i] and low[a, i] == 1 else c
            else:
                failed = error[a, i]
                pick = b if null[a, i] else a
            if failed != 0:
                low[to, i], high[to, i], null[to, i] = 0, 0, True
                error[to, i] = failed
            else:
                low[to, i], high[to, i] = low[pick, i], high[pick, i]
                null[to, i] = null[pick, i]
                error[to, i] = error[pick, i]
