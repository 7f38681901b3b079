"""The budget of queries: what is granted, what is refused, and that nothing is lost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from foreshore.compute import finish
from foreshore.errors import OutOfMemory
from foreshore.expr.ir import Column, Finishing, OrderKey
from foreshore.memory_shares import of_bulk, of_engine, of_process_apart, of_replica
from foreshore.query_memory import QueryMemory, Reservation, require_room, room
from foreshore.rows import counted
from foreshore.types import TEXT

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


def rows_of(size: int) -> pa.Table:
    return counted(pa.table({"c0": ["x" * 1000] * (size // 1000)}))


@pytest.mark.parametrize(
    "finishing",
    [
        None,
        Finishing((OrderKey(Column(0, TEXT)),), None, 0, (0,)),
        Finishing((OrderKey(Column(0, TEXT)),), 10**6, 0, (0,)),
    ],
)
def test_rows_that_have_to_be_complete_are_reserved(
    monkeypatch: pytest.MonkeyPatch, finishing: Finishing | None
) -> None:
    budget = QueryMemory(20 * MB)
    made: Callable[..., Reservation] = lambda **given: Reservation(budget, **given)  # noqa: E731
    monkeypatch.setattr(finish, "Reservation", made)
    parts = finish.finished_parts([rows_of(4 * MB)] * 2, finishing)
    assert next(parts).num_rows > 0
    assert budget.used >= 8 * MB - 8_000
    parts.close()  # type: ignore[attr-defined]
    assert budget.used == 0
    with pytest.raises(OutOfMemory):
        list(finish.finished_parts([rows_of(4 * MB)] * 4, finishing))
    assert budget.used == 0


def test_shares_of_memory_are_parts_of_one_budget() -> None:
    for queries in (16 * MB, 256 * MB, 4096 * MB):
        assert of_engine(queries) >= queries
        assert of_process_apart(queries) > of_engine(queries)
    assert of_bulk(None) == of_bulk(10**12) == 2 * 10**9
    assert of_bulk(10**9) == 5 * 10**8
    assert of_replica(10**9 + 1) == 8 * 10**8
