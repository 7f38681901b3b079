"""Functions with SQL bodies: sizes of plans."""

import itertools

import pytest

from foreshore.expr.traversal import walk_relations
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
from tests.sql.catalog import builtin_catalog


def size(sql: str) -> int:
    """Return the number of nodes in the plan of a query."""
    (statement,) = parse(sql)
    plan = plan_statement(statement, builtin_catalog())
    assert isinstance(plan, Select)
    return sum(1 for _ in walk_relations(plan.query.relation))


@pytest.mark.parametrize(
    "call",
    [
        "to_regclass({}::text)",
        "to_regtype({}::text)::int8",
        "pg_get_serial_sequence({}::regclass::text, relname)",
        "CASE WHEN has_table_privilege({}::oid, 'SELECT') THEN 1 END",
    ],
)
def test_nested_calls_grow_linearly(call: str) -> None:
    nested, sizes = call.format("oid"), []  # the text of an oid itself is not a call
    for _ in range(5):
        sizes.append(size(f"SELECT {nested} FROM pg_class"))
        nested = call.format(nested)
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) <= 2 * min(steps), sizes
