"""Windows of time and ASOF joins: maintained exactly, and what their definitions say.

Each query is planned from its text, evaluated by the model, and maintained through random changes;
a few lines of Python say what its answer is.
"""

import operator as operators
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators import window
from foreshore.expr.ir import Relation
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateMaterializedView
from foreshore.sql.planner import plan_statement
from tests.compute.cases import START, Case, Contents, check_maintained
from tests.effort import examples
from tests.model import Row, Rows, evaluate
from tests.sql.catalog import TestCatalog

pytestmark = pytest.mark.full  # random input

CATALOG = TestCatalog(
    "CREATE TABLE t (k int, ts timestamp, v int)", "CREATE TABLE q (k int, ts timestamp, v int)"
)
T, Q = (CATALOG.resolve_item((name,)).id for name in "tq")
SECOND = 1_000_000
Rule = Callable[[Rows, Rows], Rows]


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    bulk = DuckDbEngine(threads=1)
    yield FlowEngine(bulk)
    bulk.close()


def planned(query: str) -> Relation:
    (statement,) = parse(f"CREATE MATERIALIZED VIEW w AS {query}")
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, CreateMaterializedView)
    return plan.query.relation


def with_time(rows: Rows) -> list[Row]:
    return [row for row in rows.elements() if row[1] is not None]


# --- windows of time


def tumbled(rows: Rows, _: Rows) -> Rows:
    size, offset = 5 * SECOND, 2 * SECOND
    found: Rows = Counter()
    for row in with_time(rows):
        start = (row[1] - offset) // size * size + offset
        found[(*row, start, start + size)] += 1
    return found


def hopped(rows: Rows, _: Rows) -> Rows:
    slide, size = 3 * SECOND, 7 * SECOND
    found: Rows = Counter()
    for row in with_time(rows):
        for start in range(row[1] // slide * slide, row[1] - size, -slide):
            found[(*row, start, start + size)] += 1
    return found


def hopped_with_gaps(rows: Rows, _: Rows) -> Rows:
    found: Rows = Counter()
    for row in with_time(rows):
        start = row[1] // (4 * SECOND) * 4 * SECOND
        if row[1] < start + SECOND:
            found[(*row, start, start + SECOND)] += 1
    return found


def in_sessions(rows: Rows, _: Rows) -> Rows:
    gap = 2 * SECOND
    found: Rows = Counter()
    for key in {row[0] for row in rows}:
        session: list[Row] = []
        for row in [*sorted((r for r in with_time(rows) if r[0] == key), key=lambda r: r[1]), None]:
            if session and (row is None or row[1] > session[-1][1] + gap):
                for each in session:
                    found[(*each, session[0][1], session[-1][1] + gap)] += 1
                session = []
            if row is not None:
                session.append(row)
    return found


WINDOWS: dict[str, Rule] = {
    "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5 seconds', INTERVAL '2 seconds')": tumbled,
    "TUMBLE(t, ts, '5 seconds', INTERVAL '-8 seconds')": tumbled,
    "HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => '7 s', SLIDE => '3 s')": hopped,
    "HOP(t, ts, INTERVAL '4 seconds', INTERVAL '1 second')": hopped_with_gaps,
    "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2 seconds')": in_sessions,
    "SESSION(TABLE t, DESCRIPTOR(ts), DESCRIPTOR(k), INTERVAL '2 seconds')": in_sessions,
}


def random_rows(random: Random, count: int, latest: int) -> Rows:
    def row() -> Row:
        time = None if random.random() < 0.1 else random.randrange(-9, latest) * SECOND
        return random.choice((0, 1, 1, None)), time, random.randrange(3)

    return Counter(row() for _ in range(count))


def changing(random: Random, sizes: tuple[int, int], latest: int = 30) -> list[Contents]:
    """Return versions of both tables, a few rows of which differ from one to the next."""
    tables = [random_rows(random, count, latest) for count in sizes]
    history: list[Contents] = []
    for _ in range(6):
        history.append({T: tables[0].copy(), Q: tables[1].copy()})
        for table in tables:
            for row in random.sample(list(table), min(len(table), random.randrange(3))):
                table[row] -= 1
            table += random_rows(random, random.randrange(3), latest)
    return history


def check(engine: FlowEngine, query: str, rule: Rule, history: list[Contents]) -> None:
    relation = planned(query)
    for at, contents in enumerate(history):
        rows, errors = evaluate(relation, contents, time=START + at)
        assert not errors
        assert rows == rule(contents[T], contents[Q])
    check_maintained(engine, Case(relation, history, frozenset({3})))


@pytest.mark.parametrize("call", WINDOWS)
def test_windows_of_time_are_what_they_say(
    monkeypatch: pytest.MonkeyPatch, engine: FlowEngine, call: str
) -> None:
    monkeypatch.setattr(window, "FIRST_NEAR", 1)
    for seed in range(examples(3)):
        history = changing(Random(seed), (20, 0))
        check(engine, f"SELECT * FROM {call}", WINDOWS[call], history)


# --- ASOF joins


def nearest(operator: str, *, outer: bool) -> Rule:
    """Return the rule of an ASOF join of `t` and `q` by their keys and `t.ts operator q.ts`."""
    fits: Callable[[Any, Any], bool] = {
        ">=": operators.ge,
        ">": operators.gt,
        "<=": operators.le,
        "<": operators.lt,
    }[operator]
    is_next = operator[0] == "<"

    def rule(rows: Rows, others: Rows) -> Rows:
        found: Rows = Counter()
        for row in rows.elements():
            candidates = [
                other
                for other in with_time(others)
                if None not in row[:2] and other[0] == row[0] and fits(row[1], other[1])
            ]
            # Of one key and time, the first by its columns.
            best = min(candidates, key=lambda r: (r[1] if is_next else -r[1], r[2]), default=None)
            if best is not None:
                found[row + best] += 1
            elif outer:
                found[(*row, None, None, None)] += 1
        return found

    return rule


@pytest.mark.parametrize("operator", [">=", ">", "<=", "<"])
@pytest.mark.parametrize("sizes", [(20, 10), (25, 3)])
def test_asof_joins_find_the_nearest_rows(
    monkeypatch: pytest.MonkeyPatch,
    engine: FlowEngine,
    operator: str,
    sizes: tuple[int, int],
) -> None:
    monkeypatch.setattr(window, "FIRST_NEAR", 1)
    for outer in (False, True):
        join = "ASOF LEFT JOIN" if outer else "ASOF JOIN"
        query = f"SELECT * FROM t AS t(a, b, c) {join} q ON a = k AND b {operator} ts"
        for seed in range(examples(2)):
            check(engine, query, nearest(operator, outer=outer), changing(Random(seed), sizes))


def test_asof_joins_in_other_spellings(engine: FlowEngine) -> None:
    columns = "t.k, t.ts, t.v, q.k AS a, q.ts AS b, q.v AS c"
    queries = {
        f"SELECT {columns} FROM t ASOF JOIN q MATCH_CONDITION (t.ts >= q.ts) ON t.k = q.k": ">=",
        f"SELECT {columns} FROM t ASOF INNER JOIN q ON q.ts > t.ts AND t.k = q.k": "<",
    }
    for query, operator in queries.items():
        check(engine, query, nearest(operator, outer=False), changing(Random(1), (20, 10)))
