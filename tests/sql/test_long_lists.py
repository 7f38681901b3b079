"""Long lists of constants, which are read in bulk, mean what they mean when read one by one."""

from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.local.linear import evaluate_linear
from foreshore.compute.local.small.evaluate import evaluate_small
from foreshore.compute.local.small.rows import SmallRows
from foreshore.datum import to_array
from foreshore.errors import DatabaseError
from foreshore.expr.evaluate import outcome as evaluated
from foreshore.expr.ir import And, Column, Constant, Relation, Scalar
from foreshore.expr.keys import Elements
from foreshore.sql import ast
from foreshore.sql.bind import long_lists as bound_lists
from foreshore.sql.bind import predicates
from foreshore.sql.bind.constant_columns import _as_written
from foreshore.sql.bind.planning import ParameterTypes
from foreshore.sql.optimize.lookup import literal_lookup, predicates_of
from foreshore.sql.parse import long_lists
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Insert, Select
from foreshore.sql.plan.reads import query_read_by
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.bind_parameters import bind_relation, parameter_bindings
from foreshore.text import parse_text
from foreshore.types import BOOL, DATE, FLOAT8, INT4, INT8, TEXT, TIMESTAMP, SqlType, numeric
from tests.effort import examples
from tests.sql.catalog import TestCatalog

TABLE = "CREATE TABLE t (a int, b numeric(6, 2), c text, d date, e bigint, f double precision, g boolean)"
INTEGERS = st.integers(-(2**31), 2**31).map(str)
CONSTANTS = st.one_of(
    INTEGERS,
    st.sampled_from(
        ["1.25", "-0.5", "00012", "+7", "null", "NULL", "true", "False", "1e3", "2.5E-7", "1.005"]
    ),
    st.sampled_from(
        ["$1", "$2::int", "$3::numeric(6, 2)", "$7::TIMESTAMP WITHOUT TIME ZONE", "$1 ::int"]
    ),
    st.sampled_from(
        ["'a'", "''", "'it''s'", "'(1, 2), (3'", "'2024-02-29'", "'12'", "E'a\\n'", "'-- x'"]
    ),
)
NUMERIC = numeric(6, 2)
SPACES = st.sampled_from(["", " ", "\n", "\t ", " -- a comment\n", " /* (1), */ "])


def plain(monkeypatch: pytest.MonkeyPatch, text: str) -> Any:
    """Return what `parse` returns if no list is long."""
    with monkeypatch.context() as patch:
        patch.setattr(long_lists, "FEWEST", 1 << 40)
        return outcome(text)


def outcome(text: str) -> Any:
    """Return the syntax of a text with all lists as nodes, or the error."""
    try:
        return [(each.text, each.position, expanded(each.ast)) for each in parse(text)]
    except DatabaseError as error:
        return error.sqlstate, error.message, error.position


def expanded(tree: Any) -> Any:
    """Return a tree with the rest of each long list as nodes."""
    if isinstance(tree, tuple | list):
        return tuple(map(expanded, tree))
    if isinstance(tree, ast.Values) and tree.more is not None:
        tree = ast.Values(tree.whole, tree.at)
    if isinstance(tree, ast.InList) and tree.more is not None:
        tree = ast.InList(tree.arg, tree.whole, tree.negated, tree.at)
    if isinstance(tree, msgspec.Struct):
        return type(tree)(*(expanded(getattr(tree, name)) for name in tree.__struct_fields__))
    return tree


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Return a statement with a list of rows, most of which are alike."""
    width = draw(st.integers(1, 3))
    columns = [draw(CONSTANTS) for _ in range(width)]

    def row() -> str:
        values = [draw(CONSTANTS) if draw(st.integers(0, 99)) == 0 else each for each in columns]
        return f"({', '.join(values)})"

    rows = [row() for _ in range(draw(st.sampled_from([3, 33, 40])))]
    if draw(st.integers(0, 9)) == 0:
        rows[draw(st.integers(0, len(rows) - 1))] = draw(
            st.sampled_from(["(1)", "(1, 2)", "(x)", "5"])
        )
    between = draw(SPACES)
    listed = f",{between}".join(rows)
    form = draw(
        st.sampled_from(
            [
                "INSERT INTO t VALUES {}",
                "INSERT INTO t VALUES {} ON CONFLICT DO NOTHING; SELECT 1",
                "UPDATE t SET a = 1 FROM (VALUES {}) AS v (x) WHERE v.x = t.a",
                "SELECT * FROM t WHERE (a, b) IN ({}) AND c = 'x'",
                "SELECT 'VALUES (1), ' AS x, * FROM t WHERE a NOT IN ({}) -- VALUES (1),",
                "SELECT f({}), ROW(1), {}",
                "CREATE VIEW v AS VALUES {}",
                "SELECT /* VALUES {} */ 1",
                "VALUES {},",
                "PREPARE p AS INSERT INTO t VALUES {}",
            ]
        )
    )
    single = ", ".join(each[1:-1] for each in rows)
    return form.format(*[single if "NOT IN" in form else listed] * form.count("{}"))


@given(texts())
@settings(max_examples=examples(200))
def test_long_list_has_the_syntax_of_its_constants(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(text) == plain(patch, text)


COLUMNS: dict[str, tuple[str, ...]] = {
    "integers": ("1", "{}", "'x'", "'2024-01-01'", "3", "{}", "true"),
    "numbers": ("-1", "{}.125", "'{}'", "NULL", "12345678901", "{}.5", "false"),
    "strings": ("'{}'", "'{}.1'", "'it''s'", "'2024-01-{}'", "'7'", "'1e{}'", "'t'"),
    "written": ("{}", "-{}.5", "'x'", "'2024-02-{}'", "1", "1", "true"),
    "too_many_digits": ("{}", "1.005", "'x'", "'2024-02-{}'", "1", "1", "true"),
    "nothing": ("NULL",) * 7,
    "mixed": ("{}", "'{}'", "NULL", "'today'", "{}", "1", "NULL"),
}


@pytest.mark.parametrize(
    ("type", "texts"),
    [
        (DATE, ["'2024-02-29'", "'1000-01-01'"]),
        (TIMESTAMP, ["'2024-02-29 23:59:59.999999'", "'1999-12-31T00:00:00'", "'9999-01-01 01:00:00.5'"]),
        (numeric(8, 2), ["-0.00", "7", "007.5", "-999999.99"]),
    ],
    ids=str,
)  # fmt: skip
def test_constants_read_as_written_have_their_values(type: SqlType, texts: list[str]) -> None:
    wanted = [parse_text(text.strip("'"), type) for text in texts]
    assert _as_written(texts, type) == wanted
    for other in ("'2024-01-01 24:00:00'", "'0999-01-01'", "'20240101'", "1.005", "1e3"):
        found = _as_written([*texts, other], type)
        assert found is None or found == [*wanted, parse_text(other.strip("'"), type)]
    assert _as_written([*texts, "1.005"], type) is None
    assert _as_written([*texts, "'today'"], type) is None
    assert _as_written([*texts, "NULL"], type) is None


@pytest.mark.parametrize("name", COLUMNS)
def test_long_insert_has_the_rows_of_its_constants(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        f"({', '.join(column.format(10 + i % 19) for column in COLUMNS[name])})" for i in range(50)
    ]
    sql = f"INSERT INTO t VALUES {', '.join(rows)}"
    plan = planned(sql)
    assert isinstance(plan, Insert)
    with monkeypatch.context() as patch:
        patch.setattr(long_lists, "FEWEST", 1 << 40)
        other = planned(sql)
    assert isinstance(other, Insert)
    if name == "mixed":
        assert plan == other, "'today' is known at execution"
    else:
        assert evaluate_linear(plan.source).equals(evaluate_linear(other.source))
        assert isinstance(plan.source, Constant)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t (a) VALUES {}, ('x')",
        "INSERT INTO t (d) VALUES {}, ('2024-02-30')",
        "INSERT INTO t (a, b) VALUES {}",
        "INSERT INTO t (a) VALUES (1), {}, (1, 2)",
        "SELECT * FROM t WHERE d IN ({})",
        "SELECT * FROM t WHERE (a, c) IN ({})",
        "SELECT * FROM (VALUES {}, ('x')) AS v",
    ],
)
def test_long_list_fails_as_its_constants_do(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = sql.format(", ".join(["(1)"] * 40))
    found = planned(text)
    assert isinstance(found, tuple), found
    with monkeypatch.context() as patch:
        patch.setattr(long_lists, "FEWEST", 1 << 40)
        assert found == planned(text)


def planned(text: str) -> Any:
    """Return the plan of a statement, or its error."""
    try:
        (statement,) = parse(text)
        return plan_statement(statement, TestCatalog(TABLE))
    except DatabaseError as error:
        return error.sqlstate, error.message, error.position


@pytest.mark.parametrize(
    "place",
    [
        "{}",
        "WITH w AS ({}) SELECT * FROM w",
        "WITH v AS (SELECT 1), w AS ({}) SELECT * FROM v, w WHERE 1 IN (SELECT 2)",
        "WITH RECURSIVE w AS ({} UNION SELECT 1 FROM w) SELECT * FROM w",
        "WITH w AS ({}) INSERT INTO t (a) SELECT 1 FROM w",
        "PREPARE p AS WITH w AS ({}) SELECT * FROM w",
        "CREATE VIEW v AS WITH w AS ({}) SELECT * FROM w",
        "DECLARE c CURSOR FOR WITH w AS ({}) SELECT * FROM w",
        "COPY (WITH w AS ({}) SELECT * FROM w) TO STDOUT",
        "EXPLAIN WITH w AS ({}) SELECT * FROM w",
        "SELECT * FROM t, ({}) AS q WHERE a = ANY (SELECT 3)",
    ],
)
@pytest.mark.parametrize(
    "query",
    ["VALUES {}", "SELECT 1 FROM t WHERE a IN ({})", "SELECT 1 FROM t WHERE (a, c) IN ({})"],
)
def test_long_list_is_whole_wherever_a_query_stands(
    place: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "({0}, 'x{0}')" if "(a, c)" in query else "({0})" if "VALUES" in query else "{0}"
    text = place.format(query.format(", ".join(row.format(i) for i in range(100, 199))))
    assert outcome(text) == plain(monkeypatch, text)


def of_arguments(row: str, rows: int = 80) -> str:
    """Return a list of rows in which each ? is the next parameter."""
    parts = f"{', '.join([row] * rows)}".split("?")
    return "".join(part + f"${i}" for i, part in enumerate(parts[:-1], 1)) + parts[-1]


@pytest.mark.parametrize(
    ("sql", "is_bulk"),
    [
        (f"INSERT INTO t VALUES {of_arguments('(?, ?, ?, ?, ?, ?, ?)')}", True),
        (f"INSERT INTO t (c, a) VALUES {of_arguments('(?::varchar(3), ?)')}", True),
        (f"INSERT INTO t (a, c, e, b) VALUES {of_arguments('(?, NULL, 12, ?)')}", True),
        (f"INSERT INTO t (a, e) VALUES {of_arguments('(?::bigint, ?::int)')}", True),
        (f"INSERT INTO t (a) VALUES {of_arguments('(?)')}, (5)", False),
        (f"INSERT INTO t (a, c) VALUES {of_arguments('(?, current_user)')}", False),
        (f"SELECT * FROM (VALUES {of_arguments('(?, ?::int)')}) AS v (x, y)", True),
        (f"VALUES {of_arguments('(?::int, 1.5, ?::date)')}", True),
        (f"SELECT a FROM t WHERE a IN ({of_arguments('?')})", True),
        (f"SELECT a FROM t WHERE c NOT IN ({of_arguments('?')})", True),
        (f"SELECT a FROM t WHERE (a, c) IN ({of_arguments('(?, ?)')})", True),
        (f"SELECT a FROM t WHERE (a, e) IN ({of_arguments('(?::int, ?::bigint)')})", True),
        (f"SELECT a FROM t WHERE b IN ({of_arguments('?')})", False),
        (f"UPDATE t SET c = v.y FROM (VALUES {of_arguments('(?::int, ?)')}) AS v (x, y)"
         " WHERE a = v.x", True),
    ],
)  # fmt: skip
def test_long_list_of_parameters_means_its_items(
    sql: str, is_bulk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, types = planned_with_parameters(sql)
    with monkeypatch.context() as patch:
        patch.setattr(long_lists, "FEWEST", 1 << 40)
        other, expected = planned_with_parameters(sql)
    assert types == expected
    assert ("Arguments(" in repr(plan)) is is_bulk
    args = [DATA[type.name][i // 2 % 3] for i, type in enumerate(types)]
    bindings = parameter_bindings(args, lambda name: name)
    found, wanted = (
        evaluate_small(bind_relation(relation_of(each), bindings), lambda _: CONTENTS)
        for each in (plan, other)
    )
    if isinstance(plan, Insert):
        assert found.equals(wanted)
    elif isinstance(plan, Select):  # without the numbers of rows
        shown = [*range(len(plan.query.desc.columns)), found.num_columns - 1]
        found, wanted = found.select(shown), wanted.select(shown)
    assert Counter(rows_of(found)) == Counter(rows_of(wanted))
    assert found.num_rows or "NOT IN" in sql


DATA: dict[str, list[Any]] = {
    "int4": [1, 2, None],
    "int8": [1, -5, 9],
    "numeric": [Decimal("1.25"), Decimal(3), None],
    "text": ["x", "yyyyy", None],
    "varchar": ["x", "yyy", None],
    "date": [0, 8000, None],
    "float8": [0.5, None, 1.0],
    "bool": [True, None, False],
}
TYPES = [INT4, SqlType("numeric", 6, 2), TEXT, DATE, INT8, FLOAT8, BOOL]
CONTENTS = SmallRows(
    tuple(to_array([*DATA[type.name], DATA[type.name][0]], type) for type in TYPES),
    np.ones(4, np.int64),
)


def test_disjunction_of_many_equalities_is_a_long_list() -> None:
    numbers = [str(number) for number in range(150)]
    tests = " OR ".join(f"a = {number}" for number in numbers)
    by_list = planned(f"SELECT 1 FROM t WHERE a IN ({', '.join(numbers)}) OR c = 'x'")
    assert relation_of(planned(f"SELECT 1 FROM t WHERE {tests} OR c = 'x'")) in (
        relation_of(by_list),
        relation_of(planned(f"SELECT 1 FROM t WHERE c = 'x' OR a IN ({', '.join(numbers)})")),
    )
    few = relation_of(planned(f"SELECT 1 FROM t WHERE {tests} OR a = b"))
    assert "eq_any" in str(few)


@pytest.mark.parametrize("operator", ["IN", "NOT IN"])
def test_long_list_of_numerics_is_compared_as_its_items_are(
    monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    items = ", ".join(f"{number}.25" for number in range(120)) + ", 1.5, 7, 1e9"
    text = f"SELECT 1 FROM t WHERE b {operator} ({items})"
    (whole,) = predicates_of(relation_of(planned(text)))
    monkeypatch.setattr(bound_lists, "LONG_LIST", 1 << 40)
    monkeypatch.setattr(predicates, "LONG_LIST", 1 << 40)
    found = predicates_of(relation_of(planned(text)))
    each = And(tuple(found)) if len(found) > 1 else found[0]
    assert "_a" in str(whole)
    assert "_a" not in str(each)
    values = [Decimal(text) for text in ("0.25", "1.50", "-0.25", "7.00", "7.01", "119.25")]
    column = to_array([f"{value:.2f}" for value in values] + [None], NUMERIC)
    rows = [column if place == 1 else None for place in range(7)]
    assert results(whole, rows) == results(each, rows)


def results(scalar: Scalar, rows: list[pa.Array | None]) -> list[bool | None]:
    """Return the values of a condition over columns of seven rows."""
    given = [pa.nulls(7) if column is None else column for column in rows]
    values, errors = evaluated(scalar, given, 7)
    assert errors is None
    found: list[bool | None] = values.to_pylist()
    return found


def test_numerics_of_a_list_are_looked_up_in_an_index() -> None:
    items = ", ".join(f"{number}.25" for number in range(120))
    relation = relation_of(planned(f"SELECT b FROM t WHERE b IN ({items})"))
    lookup = literal_lookup(relation, (Column(1, NUMERIC),))
    assert lookup is not None
    assert isinstance(lookup.keys[0][0], Elements)


def planned_with_parameters(text: str) -> tuple[Any, tuple[SqlType, ...]]:
    """Return the plan of a statement, and the types of its parameters."""
    types = ParameterTypes()
    (statement,) = parse(text)
    return plan_statement(statement, TestCatalog(TABLE), types), types.resolved()


def relation_of(plan: Any) -> Relation:
    """Return the relation of a query, or of the rows of a change."""
    if isinstance(plan, Insert):
        return plan.source
    query = query_read_by(plan)
    assert query is not None
    return query.relation


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows with their multiplicities."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
