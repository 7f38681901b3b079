"""Statements have the columns, parameters or errors that PostgreSQL 15 gives.

The answers were recorded by `recorded/record.py`; `recorded/deviations.txt` lists differences.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from foreshore.errors import DatabaseError
from foreshore.sql.bind.planning import ParameterTypes
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import result_desc
from foreshore.sql.planner import plan_statement
from foreshore.types import oid_of
from tests.sql.catalog import TABLES, builtin_catalog

RECORDED = Path(__file__).parent / "recorded"
ANSWERS: list[dict[str, Any]] = json.loads((RECORDED / "postgresql15.json").read_text())
DEVIATIONS = {
    line
    for line in (RECORDED / "deviations.txt").read_text().splitlines()
    if line and not line.startswith("#")
}
CATALOG = builtin_catalog(TABLES)


def answer(sql: str) -> dict[str, Any]:
    """Return the result of `sql` in the form of the recorded one."""
    try:
        (statement,) = parse(sql)
        parameters = ParameterTypes()
        desc = result_desc(plan_statement(statement, CATALOG, parameters))
        columns = [] if desc is None else zip(desc.names, desc.columns, strict=True)
        return {
            "sql": sql,
            "columns": [[name, oid_of(column.type)] for name, column in columns],
            "parameters": [oid_of(type) for type in parameters.resolved()],
        }
    except DatabaseError as error:
        return {
            "sql": sql,
            "sqlstate": error.sqlstate,
            "message": error.message,
            "position": error.position,
        }


@pytest.mark.parametrize("expected", ANSWERS, ids=lambda a: a["sql"][:60])
def test_statement_has_postgresql_columns_or_error(expected: dict[str, Any]) -> None:
    if "columns" in expected:
        # Modifiers are not compared, as numeric scales are planned; names and types are.
        expected = {**expected, "columns": [column[:2] for column in expected["columns"]]}
    assert (answer(expected["sql"]) == expected) is (expected["sql"] not in DEVIATIONS)
