"""Statements and the plans they are bound to, and the errors of those that mean nothing."""

from pathlib import Path

import pytest

from foreshore.errors import DatabaseError
from foreshore.sql.bind.query import bind_query, plain_relation
from foreshore.sql.explain import explain_relation
from foreshore.sql.parse import ast, parse
from foreshore.sql.planner import ParameterTypes, plan_statement
from foreshore.sql.planning import Planning
from foreshore.types import format_type
from tests.golden import run_golden
from tests.sql.catalog import TABLES, TestCatalog

GOLDEN = Path(__file__).parent / "golden"


def outcome(catalog: TestCatalog, sql: str) -> str:
    """Return what the statement is bound to, as text."""
    try:
        (statement,) = parse(sql)
        parameters = ParameterTypes()
        planning = Planning(catalog, sql, parameters)
        tree = statement.ast
        if isinstance(tree, ast.SelectStatement):
            bound = bind_query(planning, tree.query, None)
            text = explain_relation(plain_relation(bound))
            plan_statement(statement, catalog)
            columns = ", ".join(
                f"{name} {format_type(column.type)}"
                for name, column in zip(bound.names, plan_columns(statement, catalog), strict=True)
            )
            text += f"\n-> ({columns})"
        else:
            text = repr(plan_statement(statement, catalog, parameters))
        if parameters.count:
            text += f"\nparameters: {', '.join(map(format_type, parameters.resolved()))}"
    except DatabaseError as error:
        text = f"{error.sqlstate} {error.message} @{error.position}"
        for part in (error.detail, error.hint):
            if part:
                text += f"\n  {part}"
    return text


def plan_columns(statement, catalog):
    """Return the columns that the client sees."""
    return plan_statement(statement, catalog).query.desc.columns


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.golden")), ids=lambda p: p.stem)
def test_golden(path: Path) -> None:
    catalog = TestCatalog(TABLES)
    run_golden(path, lambda command, _, text: outcome(catalog, text))
