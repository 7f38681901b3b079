"""Is a history strictly serializable? Dependencies between transactions, and a search for cycles.

Every workload is brought to one form: keys that have versions 0, 1, 2, ... in the order in which
they were installed, and transactions that read some versions and install others. From that follow
Adya's dependencies: who installed a version comes before who read it (wr) and before who installed
the next (ww), and who read a version comes before who installed the next (rw). A transaction that
had ended before another began comes before it in real time (rt). The history is strictly
serializable if and only if no version is read that nobody committed, none from the middle of a
transaction, and the dependencies have no cycle (A. Adya, "Weak Consistency", 1999; the recovery of
version orders from what is read is that of Kingsbury and Alvaro, "Elle", VLDB 2020).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

Key = Hashable


@dataclass(frozen=True, slots=True)
class Transaction:
    """What one committed transaction did, or one that may have committed.

    `begin` and `end` are times of one clock: before it was sent, and after its commit was
    acknowledged; `end` is infinite if it never was. `writes` are the first and the last version
    that it installed of each key; `reads` what it read of keys before it wrote to them.
    """

    name: str
    begin: float
    end: float = inf
    reads: Mapping[Key, int] = field(default_factory=dict)
    writes: Mapping[Key, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Why a history is not strictly serializable."""

    kind: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        return "\n  ".join((self.kind, *self.story))


def anomalies(history: Sequence[Transaction]) -> list[Anomaly]:
    """Return what is wrong with a history: nothing, if it is strictly serializable.

    Only one cycle is told of each set of transactions that depend on each other.
    """
    found: list[Anomaly] = []
    writers = _writers(history, found)
    edges = _dependencies(history, writers, found)
    _add_real_time(history, edges)
    for component in strongly_connected([[to for to, _ in out] for out in edges]):
        if len(component) > 1:
            found.append(Anomaly("cycle", _cycle(history, edges, component)))
    return found


def _writers(history: Sequence[Transaction], found: list[Anomaly]) -> dict[tuple[Key, int], int]:
    """Return who installed each version of each key."""
    writers: dict[tuple[Key, int], int] = {}
    for number, each in enumerate(history):
        for key, (first, last) in each.writes.items():
            for version in range(first, last + 1):
                other = writers.setdefault((key, version), number)
                if other != number:
                    story = (
                        f"{history[other].name} and {each.name} both made {version} of {key!r}",
                    )
                    found.append(Anomaly("lost update", story))
    return writers


def _dependencies(
    history: Sequence[Transaction],
    writers: Mapping[tuple[Key, int], int],
    found: list[Anomaly],
) -> list[list[tuple[int, str]]]:
    edges: list[list[tuple[int, str]]] = [[] for _ in history]
    versions: dict[Key, list[int]] = {}
    for key, version in writers:
        versions.setdefault(key, []).append(version)
    for each_key in versions.values():
        each_key.sort()

    def follow(number: int, kind: str, key: Key, version: int) -> None:
        """Let `number` come before who made the next version that is known of."""
        known = versions.get(key, [])
        place = bisect_right(known, version)
        if place < len(known):
            follower = writers[key, known[place]]
            if follower != number:
                edges[number].append((follower, f"{kind} {key!r} {version}"))

    for number, each in enumerate(history):
        for key, version in each.reads.items():
            if version:
                writer = writers.get((key, version))
                if writer is None:
                    story = (f"{each.name} read version {version} of {key!r}",)
                    found.append(Anomaly("read of what nobody committed", story))
                    continue
                if history[writer].writes[key][1] != version:
                    seen = (f"{each.name} read {version} of {key!r}", history[writer].name)
                    found.append(Anomaly("intermediate read", seen))
                if writer != number:
                    edges[writer].append((number, f"wr {key!r} {version}"))
            follow(number, "rw", key, version)
        for key, (_, last) in each.writes.items():
            follow(number, "ww", key, last)
    return edges


def _add_real_time(history: Sequence[Transaction], edges: list[list[tuple[int, str]]]) -> None:
    """Add real-time order: as a chain of moments, so that the edges stay few.

    Each end is a node after `history`'s; it leads to the next end, and each transaction is led to
    by the last end before its begin.
    """
    ended = sorted((each.end, number) for number, each in enumerate(history) if each.end < inf)
    ends = [end for end, _ in ended]
    first = len(history)
    for place, (_, number) in enumerate(ended):
        edges[number].append((first + place, "rt"))
        edges.append([(first + place + 1, "rt")] if place + 1 < len(ended) else [])
    for number, each in enumerate(history):
        place = bisect_left(ends, each.begin) - 1
        if place >= 0:
            edges[first + place].append((number, "rt"))


def _cycle(
    history: Sequence[Transaction], edges: Sequence[Sequence[tuple[int, str]]], nodes: Iterable[int]
) -> tuple[str, ...]:
    """Return a shortest cycle through some node of a strongly connected set, told in words."""
    inside = set(nodes)
    start = min(inside)
    before: dict[int, tuple[int, str]] = {}
    queue = [start]
    for node in queue:
        for to, why in edges[node]:
            if to in inside and to not in before:
                before[to] = (node, why)
                queue.append(to)
        if start in before:
            break
    story: list[str] = []
    node = start
    while True:
        source, why = before[node]
        if why != "rt" or source < len(history):
            story.append(f"{_name(history, source)} --{why}--> {_name(history, node)}")
        node = source
        if node == start:
            break
    return tuple(reversed(story))


def _name(history: Sequence[Transaction], number: int) -> str:
    return history[number].name if number < len(history) else "(later)"


def strongly_connected(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph (R. Tarjan, 1972), without recursion."""
    index: list[int] = [-1] * len(successors)
    low: list[int] = [0] * len(successors)
    on_stack = bytearray(len(successors))
    stack: list[int] = []
    components: list[list[int]] = []
    count = 0
    for root in range(len(successors)):
        if index[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                index[node] = low[node] = count
                count += 1
                stack.append(node)
                on_stack[node] = 1
            for place in range(at, len(successors[node])):
                to = successors[node][place]
                if index[to] < 0:
                    work += [(node, place + 1), (to, 0)]
                    break
                if on_stack[to]:
                    low[node] = min(low[node], index[to])
            else:
                if low[node] == index[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    for each in component:
                        on_stack[each] = 0
                    components.append(component)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return components


# --- from lists to versions ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Appends:
    """A transaction over lists: what it appended to each key, and the lists that it read.

    Values are never appended twice. What a transaction read of a key that it had appended to ends
    with its own values, which the workload takes off.
    """

    name: str
    begin: float
    end: float
    appended: Mapping[Key, tuple[int, ...]]
    read: Mapping[Key, tuple[int, ...]]


def versions_of(history: Sequence[Appends]) -> tuple[list[Transaction], list[Anomaly]]:
    """Return a history of lists as one of versions: a list's version is its length.

    The order of appends to a key is that of the longest list that was read of it; all others must
    be its beginnings. The history must end with a read of every key: what that lacks is lost if it
    was acknowledged, and else has not happened.
    """
    found: list[Anomaly] = []
    longest: dict[Key, tuple[int, ...]] = {}
    for each in history:
        for key, values in each.read.items():
            if len(values) > len(longest.get(key, ())):
                longest[key] = values
    for each in history:
        for key, values in each.read.items():
            if longest.get(key, ())[: len(values)] != values:
                story = (f"{each.name} read {values} of {key!r}", f"others {longest[key]}")
                found.append(Anomaly("two orders of appends", story))
    place = {
        (key, value): at for key, values in longest.items() for at, value in enumerate(values, 1)
    }
    transactions = []
    for each in history:
        writes: dict[Key, tuple[int, int]] = {}
        for key, values in each.appended.items():
            places = [place[key, value] for value in values if (key, value) in place]
            if not places and each.end == inf:
                continue
            if not places or places != list(range(places[0], places[0] + len(values))):
                story = (f"{each.name} appended {values} to {key!r}", f"they are at {places}")
                found.append(Anomaly("appends lost or torn apart", story))
                continue
            writes[key] = (places[0], places[-1])
        reads = {key: len(values) for key, values in each.read.items()}
        transactions.append(Transaction(each.name, each.begin, each.end, reads, writes))
    return transactions, found
