"""Plans of statements, and binding errors, against golden files."""

from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from foreshore.errors import DatabaseError
from foreshore.expr.explain import explain_relation, explain_scalar
from foreshore.expr.ir import Relation, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.binding import BINDING
from foreshore.sql.bind.bound_query import plain_relation
from foreshore.sql.bind.planning import ParameterTypes, Planning
from foreshore.sql.bind.query import bind_query
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Plan, Query, Select, Subscribe, result_desc
from foreshore.sql.planner import plan_statement
from foreshore.types import RelationDesc, format_type
from tests.golden import run_golden
from tests.sql.catalog import TABLES, TestCatalog, builtin_catalog

GOLDEN = Path(__file__).parent / "golden"


def outcome(catalog: TestCatalog, sql: str) -> str:
    """Return the plan of the statement as text."""
    parameters = ParameterTypes()
    try:
        (statement,) = parse(sql)
        plan = plan_statement(statement, catalog, parameters)
        again = plan_statement(statement, catalog, ParameterTypes())
        assert again == plan, "planned again, the statement means something else"
        if isinstance(statement.ast, ast.SelectStatement):
            bound = bind_query(Planning(catalog, sql, binding=BINDING), statement.ast.query, None)
            text = explain_relation(plain_relation(bound))
        else:
            text = shown(plan)
        desc = result_desc(plan)
        if desc is not None:
            columns = zip(desc.names, desc.columns, strict=True)
            text += f"\n-> ({', '.join(f'{n} {format_type(c.type)}' for n, c in columns)})"
        if parameters.count:
            text += f"\nparameters: {', '.join(map(format_type, parameters.resolved()))}"
    except DatabaseError as error:
        text = f"{error.sqlstate} {error.message} @{error.position}"
        for part in (error.detail, error.hint):
            if part:
                text += f"\n  {part}"
    return text


def shown(plan: Plan) -> str:
    """Return a plan as text: one field per line, relations as trees."""
    lines = [type(plan).__name__]
    for field in fields(plan):
        value = getattr(plan, field.name)
        if isinstance(value, Select | Subscribe):
            value = value.query
        if isinstance(value, Query):
            value = value.relation
        if isinstance(value, get_args(Relation)):
            tree = explain_relation(value).replace("\n", "\n    ")
            lines.append(f"  {field.name}:\n    {tree}")
        elif isinstance(value, RelationDesc):
            columns = zip(value.names, value.columns, strict=True)
            text = ", ".join(
                f"{n} {format_type(c.type)}{'' if c.nullable else ' not null'}" for n, c in columns
            )
            lines.append(f"  {field.name}: ({text})")
        elif isinstance(value, tuple) and value and isinstance(value[0], get_args(Scalar)):
            lines.append(f"  {field.name}: {', '.join(map(explain_scalar, value))}")
        elif isinstance(value, frozenset):
            lines.append(f"  {field.name}: {' '.join(sorted(value))}")
        else:
            lines.append(f"  {field.name}: {value}")
    return "\n".join(lines)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.golden")), ids=lambda p: p.stem)
def test_statements_match_golden(path: Path) -> None:
    catalog = builtin_catalog(TABLES)
    run_golden(path, lambda command, _, text: outcome(catalog, text))
