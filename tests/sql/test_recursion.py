"""WITH MUTUALLY RECURSIVE, and recursion in views: bound, lowered, and computed by the model."""

from collections import Counter
from itertools import product

import pytest

from foreshore.errors import DatabaseError, FeatureNotSupported, InvalidColumnReference
from foreshore.expr.block import MutualRecursion, Recursion
from foreshore.expr.ir import LetRec, Relation
from foreshore.expr.recursion import block_of, single_relation
from foreshore.expr.traversal import walk_relations
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateView, Select
from foreshore.sql.planner import plan_statement
from tests.model import NOT_CONVERGED, Row, Rows, evaluate
from tests.sql.catalog import TestCatalog

CATALOG = TestCatalog("CREATE TABLE e (a int, b int)", "CREATE TABLE roots (a int)")
IDS = {item.name.item: item.id for item in CATALOG.items.values()}
EDGES: Rows = Counter({(1, 2): 1, (2, 3): 2, (3, 1): 1, (4, 5): 1, (5, None): 1})
CONTENTS = {IDS["e"]: EDGES, IDS["roots"]: Counter({(1,): 1})}
REACH = "reach (a int, b int) AS (SELECT a, b FROM e UNION SELECT r.a, e.b FROM reach r JOIN e ON r.b = e.a)"


def relation_of(query: str) -> Relation:
    """Return a query as one relation, as a view has it."""
    (statement,) = parse(f"CREATE VIEW v AS {query}")
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, CreateView)
    return plan.query.relation


def answer(query: str) -> list[Row]:
    """Return the rows of a query, which has no error, in order."""
    rows, errors = evaluate(relation_of(query), CONTENTS)
    assert not errors
    return sorted(rows.elements(), key=str)


def closure() -> list[Row]:
    cycle = [(a, b) for a, b in product((1, 2, 3), repeat=2)]
    return sorted([*cycle, (4, 5), (4, None), (5, None)], key=str)


def test_values_are_computed_until_none_changes() -> None:
    assert answer(f"WITH MUTUALLY RECURSIVE {REACH} SELECT * FROM reach") == closure()


def test_recursive_query_in_a_view_is_the_same() -> None:
    recursive = REACH.replace("(a int, b int)", "(a, b)")
    assert answer(f"WITH RECURSIVE {recursive} SELECT * FROM reach") == closure()


def test_union_all_counts_how_often_a_row_is_found() -> None:
    found = answer(
        "WITH RECURSIVE p (n, m) AS (SELECT 1, 1 UNION ALL SELECT n + 1, m * 2 FROM p, (VALUES (1), (2)) v"
        " WHERE n < 4) SELECT n, count(*) FROM p GROUP BY n"
    )
    assert found == [(1, 1), (2, 2), (3, 4), (4, 8)]


def test_values_read_those_before_them_of_the_same_round() -> None:
    rounds = (
        "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT {}) {} SELECT x.n, y.n AS m FROM x, y"
    )
    first = "x (n int) AS (SELECT coalesce(max(n), 0) + 1 FROM y)"
    second = "y (n int) AS (SELECT coalesce(max(n), 0) FROM x)"
    assert answer(rounds.format(3, f"{first}, {second}")) == [(3, 3)]
    assert answer(rounds.format(3, f"{second}, {first}")) == [(3, 2)]


@pytest.mark.parametrize("kind", ["RECURSIVE", "MUTUALLY RECURSIVE"])
def test_recursion_that_nobody_reads_does_not_fail(kind: str) -> None:
    """Nor does one that only such a recursion reads."""
    types = " int" if kind != "RECURSIVE" else ""
    bad = f"bad (n{types}) AS (SELECT a FROM e UNION SELECT 1 / (n - n) FROM bad)"
    worse = f"worse (n{types}) AS (SELECT n FROM bad UNION SELECT n + 1 FROM worse WHERE n < 9)"
    if kind == "RECURSIVE":
        query = f"WITH RECURSIVE {bad}, {worse} SELECT a FROM roots"
    else:
        query = f"WITH MUTUALLY RECURSIVE {bad} SELECT * FROM (WITH MUTUALLY RECURSIVE {worse} SELECT a FROM roots) s"
    assert answer(query) == [(1,)]
    assert not any(isinstance(node, LetRec) for node in walk_relations(relation_of(query)))
    (statement,) = parse(query)
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Select)
    assert not plan.query.recursions


def test_values_that_read_each_other() -> None:
    found = answer(
        "WITH MUTUALLY RECURSIVE"
        " even (a int) AS (SELECT a FROM roots UNION SELECT e.b FROM odd o JOIN e ON e.a = o.a),"
        " odd (a int) AS (SELECT e.b FROM even v JOIN e ON e.a = v.a)"
        " SELECT 'even', a FROM even UNION SELECT 'odd', a FROM odd"
    )
    assert found == [("even", 1), ("even", 2), ("even", 3), ("odd", 1), ("odd", 2), ("odd", 3)]


def test_aggregates_and_negation_within_a_recursion() -> None:
    found = answer(
        "WITH MUTUALLY RECURSIVE d (a int, far bigint) AS ("
        " SELECT a, min(far) FROM (SELECT a, 0 AS far FROM roots UNION ALL"
        " SELECT e.b, d.far + 1 FROM d JOIN e ON e.a = d.a) s GROUP BY a)"
        " SELECT a, far FROM d UNION SELECT a, NULL FROM e WHERE a NOT IN (SELECT a FROM d)"
    )
    assert found == [(1, 0), (2, 1), (3, 2), (4, None), (5, None)]


@pytest.mark.parametrize(
    ("options", "rows", "failed"),
    [
        ("(RETURN AT RECURSION LIMIT 3)", 3, False),
        ("(ERROR AT RECURSION LIMIT 3)", 3, True),
        ("(RECURSION LIMIT 3)", 3, True),
        ("(RECURSION LIMIT = 9)", 5, False),
    ],
)
def test_limit_ends_a_recursion(options: str, rows: int, failed: bool) -> None:
    query = f"WITH MUTUALLY RECURSIVE {options} n (n int) AS (SELECT 1 UNION SELECT n + 1 FROM n WHERE n < 5) TABLE n"
    found, errors = evaluate(relation_of(query), CONTENTS)
    assert found.total() == rows
    assert errors == (Counter({NOT_CONVERGED.format(3): 1}) if failed else Counter())


def test_view_over_a_view_with_a_recursion() -> None:
    catalog = TestCatalog(
        "CREATE TABLE e (a int, b int)",
        f"CREATE VIEW reach AS WITH MUTUALLY RECURSIVE {REACH} SELECT * FROM reach",
    )
    (statement,) = parse(
        "CREATE VIEW v AS SELECT r.a, s.b FROM reach r JOIN reach s ON s.a = r.b WHERE r.a > 3"
    )
    plan = plan_statement(statement, catalog)
    assert isinstance(plan, CreateView)
    (id,) = (item.id for item in catalog.items.values() if item.name.item == "e")
    assert evaluate(plan.query.relation, {id: EDGES})[0] == Counter({(4, None): 1})


def test_queries_of_a_recursion_are_cast_to_the_types_declared() -> None:
    assert answer(
        "WITH MUTUALLY RECURSIVE x (n numeric(5, 1), m text) AS (SELECT 2, 'a') SELECT n, m FROM x"
    ) == [("2.0", "a")]


def test_block_and_relation_are_one() -> None:
    relation = relation_of(f"WITH MUTUALLY RECURSIVE {REACH} SELECT count(*) FROM reach")
    again = single_relation(block_of(relation))
    assert evaluate(again, CONTENTS) == evaluate(relation, CONTENTS)


def test_block_has_each_part_of_a_chain_once() -> None:
    chain = ["c0 AS (SELECT a, b FROM r)"]
    chain += [
        f"c{i} AS (SELECT DISTINCT x.a, y.b FROM c{i - 1} x JOIN c{i - 1} y ON x.b = y.a)"
        for i in range(1, 15)
    ]
    block = block_of(
        relation_of(
            "WITH MUTUALLY RECURSIVE r (a int, b int) AS (SELECT a, b FROM e UNION"
            f" (WITH {', '.join(chain)} SELECT a, b FROM c14)) SELECT * FROM r"
        )
    )
    assert sum(1 for part in block.relations() for _ in walk_relations(part)) < 150


@pytest.mark.parametrize(
    ("query", "sqlstate"),
    [
        (
            "WITH MUTUALLY RECURSIVE x (n int) AS (SELECT 1), x (n int) AS (SELECT 2) TABLE x",
            "42712",
        ),
        ("WITH MUTUALLY RECURSIVE x (n int) AS (SELECT 1, 2) TABLE x", "42P10"),
        ("WITH MUTUALLY RECURSIVE x (n int) AS (SELECT true) TABLE x", "42804"),
        ("WITH MUTUALLY RECURSIVE x (n) AS (SELECT 1) TABLE x", "42601"),
        ("WITH MUTUALLY RECURSIVE x AS (SELECT 1) TABLE x", "42601"),
        ("WITH MUTUALLY RECURSIVE (LIMIT 4) x (n int) AS (SELECT 1) TABLE x", "42601"),
        ("WITH MUTUALLY RECURSIVE (RECURSION LIMIT 0) x (n int) AS (SELECT 1) TABLE x", "0A000"),
        ("WITH MUTUALLY RECURSIVE x (n nosuch) AS (SELECT 1) TABLE x", "42704"),
    ],
)
def test_wrong_recursions_are_refused(query: str, sqlstate: str) -> None:
    with pytest.raises(DatabaseError) as raised:
        relation_of(query)
    assert raised.value.sqlstate == sqlstate


def test_recursion_that_depends_on_outer_rows_is_refused() -> None:
    (statement,) = parse(
        "SELECT (WITH MUTUALLY RECURSIVE x (n int) AS (SELECT e.a) SELECT max(n) FROM x) FROM e"
    )
    with pytest.raises(FeatureNotSupported, match="depends on outer rows"):
        plan_statement(statement, CATALOG)


def test_recursion_in_a_subquery_is_computed_once() -> None:
    (statement,) = parse(
        f"SELECT (WITH MUTUALLY RECURSIVE {REACH} SELECT count(*) FROM reach r WHERE r.a = e.a) FROM e"
    )
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Select)
    rows, errors = evaluate(single_relation(plan.query.block), CONTENTS)
    assert (rows, errors) == (Counter({(3,): 4, (2,): 1, (1,): 1}), Counter())


@pytest.mark.parametrize(
    "step",
    [
        "SELECT DISTINCT n + 1 FROM t WHERE n < 3",
        "SELECT n + 1 FROM (SELECT n FROM t ORDER BY n LIMIT 1) s WHERE n < 3",
    ],
)
def test_step_that_depends_on_all_new_rows_is_refused_in_views(step: str) -> None:
    with pytest.raises((FeatureNotSupported, InvalidColumnReference)):
        relation_of(f"WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL {step}) SELECT n FROM t")


def test_mz_now_over_the_rows_of_a_recursion_is_refused() -> None:
    (statement,) = parse(
        "CREATE MATERIALIZED VIEW v AS WITH MUTUALLY RECURSIVE x (n bigint) AS"
        " (SELECT a FROM e UNION SELECT n + 1 FROM x WHERE mz_now() > n) TABLE x"
    )
    with pytest.raises(FeatureNotSupported, match="over the rows of a recursion"):
        plan_statement(statement, CATALOG)


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        (REACH, Recursion),
        (REACH.replace("UNION", "UNION ALL"), Recursion),
        (REACH.replace("JOIN e ON r.b = e.a", "JOIN reach e (a, b) ON r.b = e.a"), MutualRecursion),
        (REACH.replace("r.a, e.b", "DISTINCT ON (r.a) r.a, e.b"), MutualRecursion),
        ("reach (a int, b int) AS (SELECT a, max(b) FROM e GROUP BY a)", MutualRecursion),
        (f"{REACH}, other (n int) AS (SELECT a FROM reach)", MutualRecursion),
    ],
)
def test_queries_read_only_new_rows_where_that_is_the_same(query: str, kind: type) -> None:
    (statement,) = parse(f"WITH MUTUALLY RECURSIVE {query} SELECT * FROM reach")
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Select)
    assert [type(each) for each in plan.query.recursions] == [kind]
