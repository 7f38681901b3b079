"""EXPLAIN PHYSICAL PLAN shows the operators of each engine, with their arrangements."""

from pathlib import Path

import pytest

from foreshore.compute.describe import describe_maintenance
from foreshore.compute.flow.build import Builder
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.describe import join_paths
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.operators.join import Join
from foreshore.expr.ir import Join as JoinPlan
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
from tests.compute.plans import PLANS
from tests.golden import run_golden
from tests.sql.catalog import TestCatalog

CATALOG = TestCatalog(
    "CREATE TABLE orders (id int, customer int, placed timestamp, amount numeric(12, 2))",
    "CREATE TABLE customers (id int, name text, tags text[])",
)


def explained(name: str, options: dict[str, str], sql: str) -> str:
    assert name == "explain"
    (statement,) = parse(sql)
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Select)
    names = {CATALOG.resolve_item((each,)).id: each for each in ("orders", "customers")}
    relation = optimize(plan.query.relation)
    return describe_maintenance(options["engine"], relation, names.__getitem__)


def test_plans_of_each_engine() -> None:
    run_golden(Path(__file__).parent / "golden" / "describe.golden", explained)


@pytest.mark.parametrize("name", [n for n, plan in PLANS.items() if isinstance(plan, JoinPlan)])
def test_described_look_ups_are_those_of_the_operator(name: str) -> None:
    plan = PLANS[name]
    assert isinstance(plan, JoinPlan)
    builder = Builder(Collections(Interner(), 1), 1)
    number, _ = builder.output(plan)
    join = builder.operators[number]
    assert isinstance(join, Join)
    described = [[input for input, _ in path] for path in join_paths(plan)]
    assert described == [[stage.input for stage in path.stages] for path in join._paths]
