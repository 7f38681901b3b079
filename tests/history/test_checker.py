"""The checker is checked: serial histories pass, and each known anomaly is found."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.checker import (
    Anomaly,
    Appends,
    Key,
    Transaction,
    anomalies,
    strongly_connected,
    versions_of,
)


def serial(seed: int, overlap: float) -> list[Transaction]:
    """Return a strictly serializable history: each takes effect at one moment of its interval."""
    choose = random.Random(seed)
    current: dict[object, int] = {}
    history = []
    for number in range(60):
        reads: dict[Key, int] = {
            key: current.get(key, 0) for key in choose.sample("abcde", choose.randrange(4))
        }
        writes: dict[Key, tuple[int, int]] = {}
        for key in choose.sample("abcde", choose.randrange(3)):
            first = current.get(key, 0) + 1
            current[key] = first + choose.randrange(2)
            writes[key] = (first, current[key])
        begin = number - choose.random() * overlap
        end = number + choose.random() * overlap
        history.append(Transaction(f"T{number}", begin, end, reads, writes))
    choose.shuffle(history)
    return history


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.9, 5.0]))
def test_what_is_serial_passes(seed: int, overlap: float) -> None:
    assert anomalies(serial(seed, overlap)) == []


@given(st.integers(0, 10_000))
def test_a_stale_read_is_found(seed: int) -> None:
    history = serial(seed, 0.0)
    for number, each in enumerate(history):
        stale = {key: version - 1 for key, version in each.reads.items() if version}
        ended = {
            key
            for other in history
            for key, (_, last) in other.writes.items()
            if key in stale and last == each.reads[key] and other.end < each.begin
        }
        if ended:
            key = min(map(str, ended))
            reads = {**each.reads, key: stale[key]}
            history[number] = Transaction(each.name, each.begin, each.end, reads, each.writes)
            assert anomalies(history)
            return


ANOMALIES = {
    "lost update": [
        Transaction("A", 0, 9, {"x": 0}, {"x": (1, 1)}),
        Transaction("B", 0, 9, {"x": 0}, {"x": (1, 1)}),
    ],
    "write skew": [
        Transaction("A", 0, 9, {"x": 0, "y": 0}, {"x": (1, 1)}),
        Transaction("B", 0, 9, {"x": 0, "y": 0}, {"y": (1, 1)}),
    ],
    "long fork": [
        Transaction("A", 0, 9, {}, {"x": (1, 1)}),
        Transaction("B", 0, 9, {}, {"y": (1, 1)}),
        Transaction("C", 0, 9, {"x": 1, "y": 0}),
        Transaction("D", 0, 9, {"x": 0, "y": 1}),
    ],
    "fractured read": [
        Transaction("A", 0, 9, {}, {"x": (1, 1), "y": (1, 1)}),
        Transaction("B", 0, 9, {"x": 1, "y": 0}),
    ],
    "intermediate read": [
        Transaction("A", 0, 9, {}, {"x": (1, 2)}),
        Transaction("B", 0, 9, {"x": 1}),
    ],
    "read of an abort": [Transaction("A", 0, 9, {"x": 1})],
    "circular information": [
        Transaction("A", 0, 9, {"y": 1}, {"x": (1, 1)}),
        Transaction("B", 0, 9, {"x": 1}, {"y": (1, 1)}),
    ],
    "stale in real time": [
        Transaction("A", 0, 1, {}, {"x": (1, 1)}),
        Transaction("B", 2, 3, {"x": 0}),
    ],
    "time goes back for a reader": [
        Transaction("A", 0, 9, {}, {"x": (1, 1)}),
        Transaction("B", 1, 2, {"x": 1}),
        Transaction("C", 3, 4, {"x": 0}),
    ],
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_anomalies_are_found(name: str) -> None:
    found = anomalies(ANOMALIES[name])
    assert found
    assert str(found[0])


def test_concurrent_transactions_may_go_either_way() -> None:
    history = [
        Transaction("A", 0, 9, {}, {"x": (1, 1)}),
        Transaction("B", 1, 8, {"x": 0}),
        Transaction("C", 1, 8, {"x": 1}),
        Transaction("D", 1, float("inf"), {"x": 1}, {"x": (2, 2)}),
        Transaction("E", 10, 11, {"x": 2}),
    ]
    assert anomalies(history) == []


def test_lists_become_versions() -> None:
    history = [
        Appends("A", 0, 1, {"x": (7, 8)}, {"x": ()}),
        Appends("B", 2, float("inf"), {"x": (9,)}, {}),
        Appends("C", 2, float("inf"), {"x": (5,)}, {}),
        Appends("D", 3, 4, {}, {"x": (7, 8, 9)}),
    ]
    found, wrong = versions_of(history)
    assert wrong == []
    assert [each.writes for each in found] == [{"x": (1, 2)}, {"x": (3, 3)}, {}, {}]
    assert anomalies(found) == []


@pytest.mark.parametrize(
    ("history", "kind"),
    [
        (
            [Appends("A", 0, 1, {"x": (7,)}, {}), Appends("B", 2, 3, {}, {"x": ()})],
            "appends lost or torn apart",
        ),
        (
            [Appends("A", 0, 1, {}, {"x": (1, 2)}), Appends("B", 0, 1, {}, {"x": (2,)})],
            "two orders of appends",
        ),
        (
            [Appends("A", 0, 1, {"x": (1, 2)}, {}), Appends("B", 2, 3, {}, {"x": (1, 3, 2)})],
            "appends lost or torn apart",
        ),
    ],
)
def test_broken_lists_are_found(history: list[Appends], kind: str) -> None:
    assert [each.kind for each in versions_of(history)[1]] == [kind]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_components_are_mutual_reachability(pairs: list[tuple[int, int]]) -> None:
    successors = [[to for from_, to in pairs if from_ == node] for node in range(10)]
    reach = [{node} for node in range(10)]
    for _ in range(10):
        for node in range(10):
            for to in successors[node]:
                reach[node] |= reach[to]
    expected = {
        frozenset(b for b in range(10) if b in reach[a] and a in reach[b]) for a in range(10)
    }
    assert {frozenset(each) for each in strongly_connected(successors)} == expected


def test_a_long_history_takes_little_time() -> None:
    history = []
    for number in range(100_000):
        key = number % 16
        version = number // 16
        history.append(
            Transaction(
                f"T{number}", number, number + 20, {key: version}, {key: (version + 1,) * 2}
            )
        )
    assert anomalies(history) == []


def test_an_anomaly_tells_its_story() -> None:
    assert str(Anomaly("cycle", ("A --wr--> B", "B --rw--> A"))).count("\n") == 2
