"""The effect of each rule: the plan after the rule and those before it, in golden files."""

from pathlib import Path

import pytest

from foreshore.expr.explain import explain_relation
from foreshore.expr.ir import Relation
from foreshore.expr.lowered import check_lowered
from foreshore.expr.share import share
from foreshore.expr.split import columns_used, may_fail, split_errors
from foreshore.sql import ast
from foreshore.sql.bind.binding import BINDING
from foreshore.sql.bind.bound_query import plain_relation
from foreshore.sql.bind.planning import ParameterTypes, Planning
from foreshore.sql.bind.query import bind_query
from foreshore.sql.lower.lower import lower
from foreshore.sql.optimize.distinct import drop_distinct
from foreshore.sql.optimize.fold import fold
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.optimize.projection import narrow
from foreshore.sql.optimize.pushdown import push_predicates
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
from tests.golden import run_golden
from tests.sql.catalog import TestCatalog

GOLDEN = Path(__file__).parent / "golden"
CATALOG = TestCatalog(
    "create table t (a int not null, b int, c text)",
    "create table u (a int, d int, e text)",
    "create table v (f int not null, g text, h float8)",
)


def bound(sql: str) -> Relation:
    """Return the bound form of a SELECT."""
    (statement,) = parse(sql)
    assert isinstance(statement.ast, ast.SelectStatement)
    planning = Planning(CATALOG, sql, ParameterTypes(), binding=BINDING)
    return plain_relation(bind_query(planning, statement.ast.query, None))


def outcome(command: str, sql: str) -> str:
    """Return the plan of `sql` after the rule `command`."""
    plan = lower(bound(sql))
    if command == "lower":
        return explain_relation(plan)
    if command == "optimize":
        return explain_relation(optimize(plan))
    if command == "split":
        rows, errors = split_errors(optimize(plan))
        return f"{explain_relation(rows)}\nerrors:\n" + (
            explain_relation(errors) if errors is not None else "none"
        )
    plan = fold(share(plan), may_fail)
    if command in ("pushdown", "distinct", "projection"):
        plan = push_predicates(plan, may_fail)
    if command in ("distinct", "projection"):
        plan = drop_distinct(plan)
    if command == "projection":
        plan = narrow(plan)
    check_lowered(plan)
    return explain_relation(plan)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.golden")), ids=lambda p: p.stem)
def test_rules_match_golden(path: Path) -> None:
    run_golden(path, lambda command, _, text: outcome(command, text))


def test_query_keeps_only_shown_and_ordering_columns() -> None:
    (statement,) = parse("select c from t order by b limit 1")
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Select)
    assert explain_relation(plan.query.relation) == "Project (#1, #2)\n  Get u1"
    assert plan.query.finishing.project == (1,)
    (key,) = plan.query.finishing.order_by
    assert columns_used(key.expr) == {0}
