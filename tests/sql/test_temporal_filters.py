"""Predicates on mz_now() in maintained relations: rows are there at the times that the query says."""

from collections import Counter

import pytest

from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import Environment, Literal, Scalar
from foreshore.expr.plan_nodes import text_of
from foreshore.expr.temporal import temporal_filters
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateMaterializedView, Explain, Select
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.types import MZ_TIMESTAMP
from tests.model import Rows, evaluate
from tests.sql.catalog import TestCatalog

CATALOG = TestCatalog("CREATE TABLE t (id int, begins bigint, ends bigint, at timestamptz)")
(TABLE,) = (item.id for item in CATALOG.items.values() if item.name.item == "t")
MICROS = 1000  # in a millisecond
CONTENTS: Rows = Counter(
    {
        (1, 2, 4, 3 * MICROS): 1,
        (2, 4, 2, 5 * MICROS): 2,
        (3, None, 3, 3 * MICROS + 1): 1,
        (4, 1, None, None): 1,
        (5, 0, 6, 0): 3,
    }
)


def relation_of(sql: str, time: int | None = None) -> tuple[Rows, Counter[str]]:
    """Return the rows and errors of a query at `time`."""
    (statement,) = parse(sql)
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Select)

    def now(scalar: Scalar) -> Scalar | None:
        return Literal(time, MZ_TIMESTAMP) if isinstance(scalar, Environment) else None

    return evaluate(bind_relation(plan.query.relation, now), {TABLE: CONTENTS})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t WHERE mz_now() < ends",
        "SELECT id FROM t WHERE mz_now() <= ends",
        "SELECT id FROM t WHERE mz_now() = ends",
        "SELECT id FROM t WHERE begins <= mz_now()",
        "SELECT id FROM t WHERE begins < mz_now() AND id > 1 AND mz_now() <= ends",
        "SELECT id FROM t WHERE NOT mz_now() > at",
        "SELECT id FROM t WHERE mz_now() BETWEEN begins AND ends",
        "SELECT id FROM t WHERE mz_now() <= at + interval '2 milliseconds'",
        "SELECT id FROM t WHERE mz_now() < 10 / (ends - 3) AND ends <> 3",
        "SELECT id FROM t WHERE mz_now() > begins AND 10 / (ends - 3) > 1 AND id <> 3",
        "SELECT count(*), max(ends) FROM t WHERE mz_now() < ends",
        "SELECT max(ends) FROM t GROUP BY id % 2 HAVING mz_now() < max(ends)",
        "SELECT a.id, b.ends FROM t a JOIN t b ON a.id = b.id + 1 AND mz_now() = b.ends",
        "SELECT a.id, b.ends FROM t a LEFT JOIN t b ON a.id = b.id + 1 AND mz_now() < b.ends",
        "SELECT id FROM t WHERE id IN (SELECT id FROM t WHERE mz_now() < ends)",
        "SELECT id FROM t a WHERE NOT EXISTS (SELECT FROM t b WHERE b.ends = a.begins AND mz_now() < b.ends)",
        "SELECT id FROM t WHERE mz_now() < ends UNION SELECT id FROM t WHERE mz_now() > begins",
        "SELECT id FROM (SELECT * FROM t ORDER BY id LIMIT 3) s WHERE mz_now() < ends",
        "SELECT id FROM t WHERE mz_now() >= 3",
    ],
)
def test_view_holds_at_each_time_what_the_query_gives(query: str) -> None:
    (statement,) = parse(f"CREATE MATERIALIZED VIEW v AS {query}")
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, CreateMaterializedView)
    found = set()
    for time in range(8):
        wanted = relation_of(query, time)
        assert evaluate(plan.query.relation, {TABLE: CONTENTS}, time=time) == wanted, time
        found.add(tuple(sorted(map(str, wanted[0].items()))))
    assert len(found) > 1, "the query changes with the time"


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("SELECT mz_now() FROM t", "outside of WHERE and HAVING"),
        ("SELECT count(*) FILTER (WHERE mz_now() < ends) FROM t", "outside of WHERE and HAVING"),
        ("SELECT id FROM t ORDER BY mz_now() LIMIT 1", "outside of WHERE and HAVING"),
        ("SELECT id FROM t WHERE id = 1 OR mz_now() < ends", "in a condition that is not"),
        ("SELECT id FROM t WHERE mz_now() <> ends", "in a condition that is not a comparison"),
        ("SELECT id FROM t WHERE CASE WHEN id = 1 THEN mz_now() < ends END", "in a condition"),
        ("SELECT id FROM t WHERE mz_now()::int8 + 1 < ends", "in an expression"),
        ("SELECT id FROM t WHERE mz_now() < mz_now()::int8 + ends", "in an expression"),
    ],
)
def test_other_uses_of_mz_now_are_refused(query: str, where: str) -> None:
    (statement,) = parse(f"CREATE MATERIALIZED VIEW v AS {query}")
    with pytest.raises(FeatureNotSupported, match=f"^mz_now\\(\\) {where}"):
        plan_statement(statement, CATALOG)


def test_view_of_a_query_over_a_view_is_temporal() -> None:
    catalog = TestCatalog(
        "CREATE TABLE t (id int, ends bigint)",
        "CREATE VIEW current AS SELECT * FROM t WHERE mz_now() < ends",
    )
    (statement,) = parse("CREATE MATERIALIZED VIEW v AS SELECT id FROM current WHERE id > 1")
    plan = plan_statement(statement, catalog)
    assert isinstance(plan, CreateMaterializedView)
    (id,) = (item.id for item in catalog.items.values() if item.name.item == "t")
    rows = Counter({(1, 9): 1, (2, 5): 1, (3, 7): 1})
    assert evaluate(plan.query.relation, {id: rows}, time=5)[0] == Counter({(3,): 1})
    assert temporal_filters(plan.query.relation) == plan.query.relation


def test_explain_of_a_materialized_view_shows_its_temporal_filter() -> None:
    (statement,) = parse(
        "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE mz_now() < ends AND id > 1"
    )
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Explain)
    assert "TemporalFilter mz_now() < cast<int8,mz_timestamp>(ends)" in text_of(plan.nodes)
