"""Errors make reads of a view fail at the times at which its policy says so."""

import pytest

from foreshore.compute.controller.error_policy import ErrorPolicy


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("changes", [(), (3,), (3, 3), (2, 5), (2, 2, 5), (1, 3, 4, 6)])
def test_first_failing_time_is_that_of_a_search_through_all_times(
    changes: tuple[int, ...], *, skips: bool
) -> None:
    def fails(time: int) -> bool:
        later = sum(1 for each in changes if each > time)
        return skips == (later % 2 == 1)

    policy = ErrorPolicy(skips, changes)
    for lower in range(8):
        for upper in range(lower, 9):
            wanted = next((time for time in range(lower, upper) if fails(time)), None)
            assert policy.first_failing(lower, upper) == wanted, (lower, upper)
