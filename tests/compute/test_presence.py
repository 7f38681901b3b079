"""The presence of a row is when all conditions hold, from its own time on."""

from itertools import product
from operator import ge, gt, le, lt

import numpy as np
import pytest

from foreshore.compute.presence import FOREVER, presence

HOLDS = {"ge": ge, "gt": gt, "le": le, "lt": lt}
BOUNDS = np.array([*range(6), FOREVER])


@pytest.mark.parametrize(("first", "second"), list(product(HOLDS, HOLDS)))
def test_row_is_there_while_conditions_hold(first: str, second: str) -> None:
    a, b = (each.ravel() for each in np.meshgrid(BOUNDS, BOUNDS))
    is_null = b == 4
    found = presence(np.full(len(a), 2), [(first, a, None), (second, b, is_null)])
    for i in range(len(a)):
        wanted = [
            bool(t >= 2 and HOLDS[first](t, a[i]) and HOLDS[second](t, b[i]) and not is_null[i])
            for t in range(9)
        ]
        inside = [bool(found.enters[i] and found.begins[i] <= t < found.ends[i]) for t in range(9)]
        assert inside == wanted, (a[i], b[i])
        assert found.leaves[i] == (any(wanted) and not wanted[-1])
