"""EXPLAIN PHYSICAL PLAN shows the operators of each engine, with their arrangements."""

from pathlib import Path

from foreshore.compute.describe import describe_maintenance
from foreshore.expr.recursion import single_relation
from foreshore.expr.temporal import temporal_filters
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
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
    block = plan.query.block.with_relations(optimize)
    relation = temporal_filters(single_relation(block))
    return describe_maintenance(options["engine"], relation, names.__getitem__)


def test_plans_of_each_engine() -> None:
    run_golden(Path(__file__).parent / "golden" / "describe.golden", explained)
