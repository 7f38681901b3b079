"""AUTO_CDC: kept exactly through random changes, late ones and repeated ones, by two engines.

Changes come in any order, twice, and go again. A few lines of Python go through the changes of a
key in the order of their sequence and say which rows and versions there are.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Engine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.expr.ir import Relation
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateMaterializedView
from foreshore.sql.planner import plan_statement
from tests.compute.cases import START, Case, Contents, check_maintained
from tests.effort import examples
from tests.model import Row, Rows, evaluate
from tests.sql.catalog import TestCatalog

pytestmark = pytest.mark.full  # random input

CATALOG = TestCatalog("CREATE TABLE feed (k int, s int, n int, op text, a int, b text)")
FEED = CATALOG.resolve_item(("feed",)).id
K, S, N, OP, A, B = range(6)
Rule = Callable[[Rows], Rows]


@pytest.fixture(scope="module", params=["flow", "duckdb"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    bulk = DuckDbEngine(threads=1)
    yield FlowEngine(bulk) if request.param == "flow" else bulk
    bulk.close()


def planned(query: str) -> Relation:
    (statement,) = parse(f"CREATE MATERIALIZED VIEW w AS {query}")
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, CreateMaterializedView)
    return plan.query.relation


def in_order(values: tuple[Any, ...]) -> tuple[tuple[bool, Any], ...]:
    """Return a key that sorts NULL last."""
    return tuple((value is None, value or 0 if value is None else value) for value in values)


def changes(feed: Rows, keys: tuple[int, ...], sequence: tuple[int, ...]) -> list[list[Row]]:
    """Return the changes of each key in their order, one for each sequence."""
    found: dict[Row, dict[Row, Row]] = defaultdict(dict)
    for row in sorted(feed.elements(), key=lambda r: (r[OP] != "d", in_order(r))):
        if all(row[i] is not None for i in sequence):
            found[tuple(row[i] for i in keys)].setdefault(tuple(row[i] for i in sequence), row)
    return [[found[k][s] for s in sorted(found[k])] for k in found]


def present(feed: Rows, keys: tuple[int, ...] = (K,), sequence: tuple[int, ...] = (S,)) -> Rows:
    last = [each[-1] for each in changes(feed, keys, sequence)]
    return Counter(row for row in last if row[OP] != "d")


def filled(each: list[Row]) -> list[Row]:
    """Return the changes of a key with what was known of `a` and `b` since a deletion."""
    known: list[Any] = [None, None]
    rows = []
    for row in each:
        if row[OP] == "d":
            known = [None, None]
        else:
            known = [known[i] if row[A + i] is None else row[A + i] for i in range(2)]
        rows.append((*row[:A], *known))
    return rows


def present_and_filled(feed: Rows) -> Rows:
    last = [filled(each)[-1] for each in changes(feed, (K,), (S, N))]
    return Counter(row for row in last if row[OP] != "d")


def versions(each: list[Row], tracked: tuple[int, ...]) -> list[Row]:
    """Return the versions of a key: their last rows, from when, until when, whether it lasts."""
    found: list[Row] = []
    before: Row | None = None
    for row in each:
        goes_on = before is not None and all(before[i] == row[i] for i in tracked)
        if row[OP] != "d" and goes_on:
            found[-1] = (*row, *found[-1][6:])
        else:
            if before is not None:
                found[-1] = (*found[-1][:6], found[-1][6], row[S], False)
            if row[OP] != "d":
                found.append((*row, row[S], None, True))
        before = None if row[OP] == "d" else row
    return found


def history(tracked: tuple[int, ...], keys: tuple[int, ...], sequence: tuple[int, ...]) -> Rule:
    def rule(feed: Rows) -> Rows:
        each = changes(feed, keys, sequence)
        return Counter(row for rows in each for row in versions(rows, tracked))

    return rule


def history_filled(feed: Rows) -> Rows:
    each = changes(feed, (K,), (S, N))
    return Counter(row for rows in each for row in versions(filled(rows), (A, B)))


def snapshots(feed: Rows) -> list[list[Row]]:
    """Return the changes of each key that a copy for each sequence makes."""
    copies = sorted({row[S] for row in feed.elements() if row[S] is not None})
    found = []
    for (key,) in {(row[K],) for row in feed.elements()}:
        at = {row[S]: row for row in sorted(feed.elements(), key=in_order, reverse=True)
              if row[K] == key and row[S] is not None}  # fmt: skip
        rows = [at.get(copy, (key, copy, None, "d", None, None)) for copy in copies]
        found.append([row for i, row in enumerate(rows) if row[OP] != "d" or i])
    return found


def without_operations(rule: Rule) -> Rule:
    """Return the rule over snapshots, whose rows have no operations."""
    return lambda feed: rule(Counter({row: n for row, n in feed.items() if row[OP] != "d"}))


def present_of_snapshots(feed: Rows) -> Rows:
    last = [each[-1] for each in snapshots(feed) if each]
    return Counter(row for row in last if row[OP] != "d")


def history_of_snapshots(feed: Rows) -> Rows:
    return Counter(row for each in snapshots(feed) for row in versions(each, (N, A, B)))


DELETES = "APPLY AS DELETE WHEN op = 'd'"
TYPE_2 = "STORED AS SCD TYPE 2"
COPIES = "SNAPSHOTS OF (SELECT * FROM feed WHERE op IS DISTINCT FROM 'd')"
CLAUSES: dict[str, Rule] = {
    f"TABLE feed KEYS (k) SEQUENCE BY s {DELETES}": present,
    f"feed AS f KEYS (k, a) SEQUENCE BY STRUCT(s, n) {DELETES}": lambda feed: present(
        feed, (K, A), (S, N)
    ),
    f"feed KEYS (k) SEQUENCE BY s, n IGNORE NULL UPDATES {DELETES}": present_and_filled,
    f"feed KEYS (k) SEQUENCE BY s {DELETES} {TYPE_2}": history((N, A, B), (K,), (S,)),
    f"feed KEYS (k, a) SEQUENCE BY (s, n) {TYPE_2} {DELETES} TRACK HISTORY ON (b)": history(
        (B,), (K, A), (S, N)
    ),
    f"feed KEYS (k) SEQUENCE BY s {DELETES} {TYPE_2} TRACK HISTORY ON * EXCEPT (n, b)": history(
        (A,), (K,), (S,)
    ),
    f"feed KEYS (k) SEQUENCE BY (s, n) {DELETES} IGNORE NULL UPDATES ON (a, b) {TYPE_2}": (
        history_filled
    ),
    f"{COPIES} KEYS (k) SEQUENCE BY s": without_operations(present_of_snapshots),
    f"{COPIES} KEYS (k) SEQUENCE BY s {TYPE_2} TRACK HISTORY ON n, a, b": without_operations(
        history_of_snapshots
    ),
}


def random_changes(random: Random, count: int) -> Rows:
    def change() -> Row:
        sequence = None if random.random() < 0.05 else random.randrange(8)
        return (
            random.choice((0, 1, 1, None)),
            sequence,
            random.randrange(2),
            random.choice(("u", "u", "d", None)),
            random.choice((1, 2, None)),
            random.choice(("x", "y", None)),
        )

    return Counter(change() for _ in range(count))


def changing(random: Random) -> list[Contents]:
    """Return versions of the feed: changes come in any order, some twice, and some go again."""
    feed = random_changes(random, random.randrange(20))
    found: list[Contents] = []
    for _ in range(7):
        found.append({FEED: feed.copy()})
        for row in random.sample(list(feed), min(len(feed), random.randrange(3))):
            feed[row] += random.choice((1, -feed[row]))
        feed += random_changes(random, random.randrange(4))
    return found


@pytest.mark.parametrize("clauses", CLAUSES)
def test_rows_and_versions_are_those_of_the_changes_in_order(engine: Engine, clauses: str) -> None:
    relation = planned(f"SELECT * FROM AUTO_CDC({clauses})")
    for seed in range(examples(12)):
        contents = changing(Random(seed))
        for at, each in enumerate(contents):
            rows, errors = evaluate(relation, each, time=START + at)
            assert not errors
            assert rows == CLAUSES[clauses](each[FEED]), f"seed {seed}, at {at}"
        check_maintained(engine, Case(relation, contents, frozenset({3})))
