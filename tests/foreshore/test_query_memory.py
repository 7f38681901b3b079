"""The budget of queries: what is granted, what is refused, and that nothing is lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from foreshore.errors import OutOfMemory
from foreshore.query_memory import QueryMemory, Reservation, require_room, room

MB = 1 << 20


def test_a_lone_query_gets_half_and_each_later_one_as_much_as_remains() -> None:
    budget = QueryMemory(120 * MB)
    held = []
    for expected in (60, 30, 15):
        one = Reservation(budget)
        one.reserve(expected * MB)
        with pytest.raises(OutOfMemory, match="out of memory") as refused:
            one.reserve(MB)
        assert refused.value.sqlstate == "53200"
        assert refused.value.detail == f"Failed on request of size {MB}."
        held.append(one)
    assert budget.used == 105 * MB
    for one in held:
        one.close()
    assert budget.used == 0
    assert budget.refused == 3


def test_what_can_be_on_disk_leaves_half_of_the_budget() -> None:
    budget = QueryMemory(100 * MB)
    parked = [Reservation(budget) for _ in range(100)]
    assert sum(each.try_reserve(MB) for each in parked) == 50
    one = Reservation(budget)
    one.reserve(25 * MB)
    parked.clear()
    assert budget.used == 25 * MB


def test_a_limit_of_its_own_holds_before_the_budget() -> None:
    budget = QueryMemory(100 * MB)
    one = Reservation(budget, most=MB)
    assert not one.try_reserve(2 * MB)
    with pytest.raises(OutOfMemory):
        one.reserve(2 * MB)


def test_threads_leave_nothing_behind() -> None:
    budget = QueryMemory(10 * MB)

    def work(seed: int) -> int:
        granted = 0
        for number in range(2_000):
            one = Reservation(budget)
            size = (seed * 7919 + number * 104729) % MB
            granted += one.try_reserve(size)
            try:
                one.reserve(size)
            except OutOfMemory:
                one.release(size // 2)
            assert 0 <= budget.used <= budget.limit
            one.close()
        return granted

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(work, range(8))) > 0
    assert budget.used == 0


def test_room_is_that_of_the_thread_and_ends() -> None:
    require_room(1 << 40)
    with room(MB):
        require_room(MB)
        with pytest.raises(OutOfMemory):
            require_room(MB + 1)
        with ThreadPoolExecutor(1) as other:
            other.submit(require_room, MB + 1).result()
    require_room(MB + 1)
