"""Limits of memory: sizes as text, budgets, and the memory of machine and process."""

import os

import pytest

from foreshore.compute.memory_limit import (
    MemoryBudget,
    MemoryLimitExceeded,
    ReplicaMemory,
    default_limit,
    machine_bytes,
)
from foreshore.memory import own_bytes
from foreshore.sizes import bytes_of, shown


@pytest.mark.parametrize(
    ("text", "size"),
    [("500MB", 500_000_000), ("2 GB", 2 * 10**9), (" 1 GiB ", 1 << 30), ("7b", 7), ("3kB", 3000)],
)
def test_size_is_read_and_shown_so_that_it_is_read_again(text: str, size: int) -> None:
    assert bytes_of(text) == size
    assert bytes_of(shown(size).replace("bytes", "b")) == size


@pytest.mark.parametrize("text", ["", "5", "0 GB", "-1 GB", "1.5 GB", "1 PB", "GB"])
def test_other_text_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        bytes_of(text)


def test_budget_is_exceeded_beyond_its_limit_only() -> None:
    budget = MemoryBudget(1000)
    budget.check(1000)
    with pytest.raises(MemoryLimitExceeded, match="memory limit of 1 kB exceeded") as raised:
        budget.check(1001)
    assert raised.value.sqlstate == "53200"
    MemoryBudget(None).check(1 << 60)


def test_refused_budget_fails_whatever_is_used() -> None:
    budget = MemoryBudget(None)
    budget.refuse(3 * 10**9)
    with pytest.raises(MemoryLimitExceeded, match="memory limit of the replica \\(3 GB\\)"):
        budget.check(0)


def test_replica_has_by_default_most_of_the_machine() -> None:
    machine = machine_bytes()
    assert machine is not None
    limit = ReplicaMemory().limit
    assert limit == default_limit(machine)
    assert limit is not None
    assert 0.7 * machine < limit < machine
    assert not ReplicaMemory().is_exceeded
    assert ReplicaMemory(1 << 20).is_exceeded  # a Python process has more


def test_memory_of_workers_counts_for_the_replica() -> None:
    limit = 2 * own_bytes()
    assert not ReplicaMemory(limit).is_exceeded
    assert ReplicaMemory(limit, lambda: [os.getpid(), os.getpid()]).is_exceeded
    assert not ReplicaMemory(limit, lambda: [1 << 30]).is_exceeded  # it has ended
