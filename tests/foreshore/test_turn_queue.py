"""Turns are given first in, first out, and none is lost."""

import threading
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.turn_queue import Turn, TurnQueue


def nothing() -> None:
    """Wake nobody."""


@given(st.integers(1, 3), st.lists(st.integers(-1, 9), max_size=60))
def test_queue_gives_turns_in_order_and_loses_none(count: int, steps: list[int]) -> None:
    """Each step requests a turn (-1), or ends one that is held or waited for."""
    queue, woken = TurnQueue(count), list[int]()
    held: list[Turn] = []
    waiting: deque[tuple[int, Turn]] = deque()
    for number, step in enumerate(steps):
        every = [*held, *(turn for _, turn in waiting)]
        if step < 0 or not every:
            turn = queue.request(lambda number=number: woken.append(number))  # type: ignore[misc]
            if len(held) < count:
                held.append(turn)
            else:
                waiting.append((number, turn))
            assert not woken
        else:
            turn = every[step % len(every)]
            queue.end(turn)
            if turn in held:
                held.remove(turn)
                if waiting:
                    first, given_now = waiting.popleft()
                    held.append(given_now)
                    assert woken == [first]
                    woken.clear()
            else:
                waiting = deque(each for each in waiting if each[1] is not turn)
        assert all(each.is_given for each in held)
        assert not any(each.is_given for _, each in waiting)
        assert queue.is_wanted == bool(waiting)
        assert queue.is_idle == (not held)


@pytest.mark.parametrize("count", [1, 2])
def test_threads_that_pass_turns_on_all_end(count: int) -> None:
    queue, rounds = TurnQueue(count), [0] * 8

    def work(number: int) -> None:
        for _ in range(50):
            woken = threading.Event()
            turn = queue.request(woken.set)
            while not turn.is_given:
                assert woken.wait(60)
            rounds[number] += 1
            queue.end(turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(rounds))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert rounds == [50] * len(rounds)
    assert queue.is_idle
    assert not queue.is_wanted
