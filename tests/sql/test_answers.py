"""Queries give the answers of PostgreSQL 15, recorded by `recorded/record.py`.

Each query is bound, lowered, optimised and run on DuckDB. Numbers are compared by value, as the
displayed scale of a numeric is planned (decision 0002).
"""

import json
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.datum import from_array, to_array
from foreshore.errors import DatabaseError
from foreshore.expr.columns import columns_of
from foreshore.ids import GlobalId
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
from foreshore.text import format_text, parse_text
from foreshore.types import SqlType
from tests.sql.catalog import TABLES, builtin_catalog

RECORDED = Path(__file__).parent / "recorded"
ANSWERS: list[dict[str, Any]] = json.loads((RECORDED / "answers.json").read_text())
CATALOG = builtin_catalog(TABLES)


@pytest.fixture(scope="module")
def engine() -> DuckDbEngine:
    return DuckDbEngine()


@pytest.fixture(scope="module")
def inputs() -> dict[GlobalId, Input]:
    """Return the contents of the tables, all at time 0."""
    tables = {}
    contents = json.loads((RECORDED / "contents.json").read_text())
    for name, content in zip(("t", "u"), contents, strict=True):
        item = CATALOG.resolve_item((name,))
        schema = item.desc.arrow_schema()
        arrays = []
        for i, column in enumerate(item.desc.columns):
            texts = [row[i] for row in content["rows"]]
            data = [None if text is None else parse_text(text, column.type) for text in texts]
            arrays.append(to_array(data, column.type))
        count = len(content["rows"])
        arrays += [pa.array([0] * count, pa.int64()), pa.array([1] * count, pa.int64())]
        updates = pa.table(arrays, names=[*schema.names, "__time", "__diff"])
        tables[item.id] = Input(schema, (), (updates,))
    return tables


def answer(sql: str, engine: DuckDbEngine, inputs: dict[GlobalId, Input]) -> list[list[Any]]:
    """Return the rows of the result as text, sorted by that text."""
    (statement,) = parse(sql)
    plan = plan_statement(statement, CATALOG)
    assert isinstance(plan, Select)
    relation, finishing = plan.query.relation, plan.query.finishing
    table = engine.evaluate(relation, inputs, 0).combine_chunks()
    types = [column.type for column in columns_of(relation)]
    data = [
        [d for chunk in table.column(i).chunks for d in from_array(chunk, type)]
        for i, type in enumerate(types)
    ]
    rows = [
        tuple(column[k] for column in data)
        for k, count in enumerate(table.column(len(types)).to_pylist())
        for _ in range(count)
    ]
    for key in reversed(finishing.order_by):
        rows = _ordered(rows, key, types)
    rows = rows[finishing.offset :]
    if finishing.limit is not None:
        rows = rows[: finishing.limit]
    shown = [[_text(row[i], types[i]) for i in finishing.project] for row in rows]
    return sorted(shown, key=str)


def _ordered(rows: list[Any], key: Any, types: list[SqlType]) -> list[Any]:
    from foreshore.expr.equality import python_keys

    index = key.expr.index
    nulls = [row for row in rows if row[index] is None]
    others = [row for row in rows if row[index] is not None]
    keys = python_keys(to_array([row[index] for row in others], types[index]), types[index])
    places = sorted(range(len(others)), key=keys.__getitem__, reverse=key.descending)
    others = [others[i] for i in places]
    return nulls + others if key.nulls_first else others + nulls


def _text(datum: Any, type: SqlType) -> str | None:
    return None if datum is None else format_text(datum, type)


def _by_value(rows: list[list[str | None]]) -> list[list[Any]]:
    def value(text: str | None) -> Any:
        try:
            number = Decimal(text) if text is not None else None
        except InvalidOperation:
            return text
        # As many digits as the planned scale of a quotient.
        return None if number is None else str(number) if number.is_nan() else float(number)

    return sorted([[value(text) for text in row] for row in rows], key=str)


@pytest.mark.parametrize("expected", ANSWERS, ids=lambda a: a["sql"][:60])
def test_query_gives_postgresql_answer(
    expected: dict[str, Any], engine: DuckDbEngine, inputs: dict[GlobalId, Input]
) -> None:
    if "error" in expected:
        with pytest.raises(DatabaseError) as caught:
            answer(expected["sql"], engine, inputs)
        assert f"{caught.value.sqlstate} {caught.value.message}" == expected["error"]
    else:
        found = answer(expected["sql"], engine, inputs)
        assert _by_value(found) == _by_value(expected["rows"])
