"""Rows that are read by their forms mean what they mean when each is tokenized."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.local.small.evaluate import evaluate_small
from foreshore.compute.local.small.rows import SmallRows
from foreshore.errors import DatabaseError
from foreshore.sql import ast
from foreshore.sql.ast.form_rows import FormRows
from foreshore.sql.parse import row_forms
from foreshore.sql.parse.long_lists import take_out
from foreshore.sql.parse.parse import parse, parse_expression
from foreshore.sql.parse.row_forms import read_rows
from foreshore.sql.plan import Insert
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.bind_parameters import bind_relation, parameter_bindings
from tests.effort import examples
from tests.processor_time import seconds_of
from tests.sql.catalog import TestCatalog

TABLE = (
    "CREATE TABLE t (a int DEFAULT 7, b numeric(6, 2), c text, d date, e timestamptz DEFAULT now())"
)
LITERALS = [
    "1", "-1", "+7", "12345678901", "1.50", "-0.5", "1e3", "2.5E-7", "007",
    "'a'", "''", "'it''s'", "'(1), (2'", "'/* x'", "'-- x'", r"'\'", "'é'", "' 12'",
    r"E'a\n'", r"e'it\'s'", r"E'\u00e9\\'", "$$a$b$$", "$$'$$", "$q$ $$ $q$",
    "NULL", "null", "True", "FALSE", "$1", "b'101'", "X'1F'", "U&'d\\0061t'", "n'a'",
]  # fmt: skip
TYPES = [
    "int", "date", "numeric(10, 2)", "numeric (10,2)", "varchar(10)", "character varying(3)", "text[]",
    "timestamp(3) with time zone", "double precision", "pg_catalog.int4", '"date"', "INT", "int[ ] []",
]  # fmt: skip
CELLS = [
    "{}", "{}::%", "{} :: % ::text", "CAST({} AS %)", "cast ( {} as % )::text", "% {}", "-{}::%", "+ {}::%",
    "DEFAULT", "default", "({})", "{} + 1", "f({}, ')')", "CASE WHEN {} = 1 THEN 2 END", "x", "{} {}",
]  # fmt: skip
BLANKS = [
    "",
    " ",
    "\n",
    "\t",
    "-- a comment, (1)\n",
    "/* (2), */",
    "/* a /* nested */ */",
    " --'\r",
]


@st.composite
def cells(draw: st.DrawFn) -> tuple[str, ...]:
    """Return the parts of a cell, between which blanks may stand."""
    cell = draw(st.sampled_from(CELLS))
    parts = cell.replace("%", draw(st.sampled_from(TYPES))).split("{}")
    found = [parts[0]]
    for part in parts[1:]:
        found += [draw(st.sampled_from(LITERALS)), part]
    return tuple(part for part in found if part)


@st.composite
def lists(draw: st.DrawFn) -> str:
    """Return a list of rows, most of which have one of few forms."""
    kinds = draw(st.lists(st.lists(cells(), min_size=1, max_size=3), min_size=1, max_size=3))
    plain = draw(st.lists(st.sampled_from(LITERALS[:22]), min_size=1, max_size=8))
    rows = []
    for i in range(draw(st.sampled_from([2, 20, 60]))):
        kind = (
            draw(st.sampled_from(kinds)) if draw(st.integers(0, 9)) == 0 else kinds[i % len(kinds)]
        )
        blank = draw(st.sampled_from(BLANKS)) if draw(st.integers(0, 9)) == 0 else " "
        literal = plain[i % len(plain)]
        parts = [
            blank.join(literal if part in LITERALS[:22] else part for part in cell) for cell in kind
        ]
        rows.append(f"({blank}{f'{blank},'.join(parts)}{blank})")
    between = draw(st.sampled_from(BLANKS))
    return f",{between}".join(rows)


def syntax(text: str) -> Any:
    """Return the syntax of a text with all rows as nodes, or its error."""
    try:
        return [(each.text, each.position, whole(each.ast)) for each in parse(text)]
    except DatabaseError as error:
        return error.sqlstate, error.message, error.position


def whole(tree: Any) -> Any:
    """Return a tree with the rows of each long list as nodes."""
    if isinstance(tree, tuple | list):
        return tuple(map(whole, tree))
    if isinstance(tree, ast.Values) and tree.more is not None:
        check(tree.more, tree.rows, tree.whole)
        tree = ast.Values(tree.whole, tree.at)
    if isinstance(tree, msgspec.Struct):
        return type(tree)(*(whole(getattr(tree, name)) for name in tree.__struct_fields__))
    return tree


def check(found: FormRows, kept: Any, rows: Any) -> None:
    """Raise an error unless the literals of each form are those of its rows."""
    assert len(found) == len(rows)
    done, at = dict.fromkeys(found.columns, 0), 0
    for number, count in found.runs:
        columns = found.columns.get(number)
        for row in rows[at : at + count]:
            if columns is None:
                assert shape(row) == shape(kept[number])
                continue
            place = done[number]
            done[number] += 1
            assert len(row) == len(columns)
            for cell, first, texts in zip(row, kept[number], columns, strict=True):
                assert outside(cell) == outside(first)
                assert texts is None or value(inside(cell)) == value(parse_expression(texts[place]))
        at += count


def inside(cell: Any) -> Any:
    """Return the literal of a cell."""
    while isinstance(cell, ast.CastTo | ast.Operation):
        cell = cell.arg if isinstance(cell, ast.CastTo) else cell.right
    return cell


def outside(cell: Any) -> list[Any]:
    """Return what is around the literal of a cell."""
    found: list[Any] = []
    while isinstance(cell, ast.CastTo | ast.Operation):
        if isinstance(cell, ast.CastTo):
            found.append(msgspec.structs.replace(cell.type, at=0))
            cell = cell.arg
        else:
            found.append(cell.operator)
            cell = cell.right
    return found


def value(literal: Any) -> Any:
    """Return a literal without its place."""
    return msgspec.structs.replace(literal, at=0)


def shape(row: Any) -> Any:
    """Return rows of a syntax with places."""
    return [repr(cell) for cell in row]


@given(
    lists(), st.sampled_from(["VALUES {}", "INSERT INTO t VALUES /* x */ {} RETURNING 1; SELECT 2"])
)
@settings(max_examples=examples(300))
def test_rows_read_by_forms_have_the_syntax_of_their_tokens(rows: str, form: str) -> None:
    text = form.format(rows) + " " * 256
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foreshore.sql.parse.long_lists.FEWEST", 4)
        patch.setattr(row_forms, "READ_BY_CELL", 3)
        found = syntax(text)
        patch.setattr("foreshore.sql.parse.long_lists.FEWEST", 1 << 40)
        assert found == syntax(text)


@pytest.mark.parametrize(
    "cell",
    [
        "{}", "{}::int", "CAST({} AS int)", "int '{}'", "-{}::int", "$${}$$", "E'{}'",
        "'{}'::text::int", "{}::pg_catalog.int4", "-- x\n {}", "DEFAULT, {}", "NULL, {}",
    ],
)  # fmt: skip
def test_rows_of_one_form_are_one_row_of_syntax(cell: str) -> None:
    text = "VALUES " + ", ".join(f"({cell.format(i)}, 'x{i}')" for i in range(100))
    rows = read_rows(text, 7, len(text), 32, is_in_list=False)
    assert rows is not None
    assert rows.end == len(text)
    assert rows.runs == [(0, 100)]
    assert rows.columns[0][-1] == [f"'x{i}'" for i in range(100)]


def test_rows_of_several_forms_are_runs() -> None:
    parts = [f"({i}, 'x')" for i in range(100)]
    parts[50] = "(now(), 'y')"
    parts[70] = "(70::int, 'x')"
    text = "VALUES " + ", ".join(parts)
    rows = read_rows(text, 7, len(text), 32, is_in_list=False)
    assert rows is not None
    assert rows.runs == [(0, 50), (1, 1), (0, 19), (2, 1), (0, 29)]
    (statement,) = parse(text)
    assert isinstance(statement.ast, ast.SelectStatement)
    values = statement.ast.query.body
    assert isinstance(values, ast.Values)
    assert len(values.rows) == 3
    assert len(values.whole) == 100


@pytest.mark.parametrize(
    "text",
    [
        "VALUES " + "(1), " * 50,
        "VALUES " + "(1), " * 50 + "x",
        "VALUES " + "(1), " * 50 + "(1",
        "VALUES " + "(1), " * 50 + r"(E'\u12')",
        "VALUES " + r"(E'\x00'), " * 50 + "('a')",
        "VALUES " + "(1), " * 50 + "('a' 'b')",
        "VALUES " + "(1), " * 50 + "('a'\n'b')",
        "VALUES " + "(1), " * 50 + "(1) + 1",
        "VALUES " + "(1), " * 50 + "((SELECT 1))",
        "SELECT 1 WHERE (1, 2) IN (" + "(1, 2), " * 50 + "(3, 4) + 5)",
        "SELECT 1 WHERE (1, 2) IN (" + "(1, 2), " * 50 + "(3, 4), x)",
        "SELECT 1 WHERE (1, 2) IN (" + "(1, 2), " * 50 + "(3, 4)",
        "SELECT 1 WHERE 1 IN (" + "(1), " * 50 + "(3))",
    ],
)
def test_list_that_goes_on_otherwise_is_read_as_it_is(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = syntax(text)
    monkeypatch.setattr("foreshore.sql.parse.long_lists.FEWEST", 1 << 40)
    assert found == syntax(text)


@pytest.mark.parametrize(
    "row",
    [
        "({i}, {i}.5, 'c{i}', '2024-01-01'::date, DEFAULT)",
        "({i}::int, {i}.25::numeric(8, 2), 'c{i}'::varchar(2), DATE '2024-02-29', '2024-01-01 00:00Z')",
        "(-{i}::int, '{i}', E'c\\n{i}', NULL::date, NULL)",
        "(DEFAULT, CAST('{i}' AS int), $$c$$, '20240101', '2024-01-01'::date)",
        "(CAST(-{i} AS int8), NULL, true::text, CAST('2024-01-01 10:00' AS timestamp), now())",
        "({i}, {i}.255::numeric(6, 1), '{i}.5'::varchar(9)::text, '20240101', '2024-01-01 05:00+03'::timestamptz)",
        "('{i}', '{i}.255', {i}.50::numeric, '2024-01-{d}', '2024-01-{d} 05:00:07.25-08')",
        "('{i}'::int, '{i}.255'::numeric(6, 1), '{i}', '2024-01-{d}'::timestamp, '2024-01-{d} 05:00:07 UTC')",
        "({i}, {i}::float8, {i}::text, 'epoch'::date, '2024-01-01'::timestamp)",
        "('{i}'::int2, 1e1, '{i}'::bpchar(5), NULL, NULL)",
    ],
)
@pytest.mark.parametrize(
    "other", ["", "(1, 1 + 1, lower('X'), now(), now())", "(1, 2, NULL, NULL, NULL)"]
)
def test_insert_has_the_rows_of_its_text(
    row: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row.format(i=i, d=1 + i % 31) for i in range(60)]
    if other:
        rows[20], rows[40] = other, other
    text = f"INSERT INTO t VALUES {', '.join(rows)}"
    found = rows_of(plan(text))
    monkeypatch.setattr("foreshore.sql.parse.long_lists.FEWEST", 1 << 40)
    assert found == rows_of(plan(text))


@pytest.mark.parametrize(
    "row",
    [
        "('x'::date)", "(1::date)", "('2024-02-30'::date)", "(1, 2)", "(99999999999::int4)", "('x'::nothing)",
        "(true::date)", "(1)", "(' 2024-01-05 ')", "('')",
    ],
)  # fmt: skip
def test_wrong_row_has_its_error(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"('2024-01-{1 + i % 28:02}'::date)" for i in range(60)]
    text = f"INSERT INTO t (d) VALUES {', '.join([*rows, row, *rows])}"
    found = plan(text)
    monkeypatch.setattr("foreshore.sql.parse.long_lists.FEWEST", 1 << 40)
    wanted = plan(text)
    if isinstance(wanted, tuple):
        assert found == wanted
    else:
        assert rows_of(found) == rows_of(wanted)


def plan(text: str) -> Any:
    """Return the plan of a statement, or its error."""
    try:
        (statement,) = parse(text)
        return plan_statement(statement, TestCatalog(TABLE))
    except DatabaseError as error:
        return error.sqlstate, error.message, error.position


def rows_of(plan: Any) -> Any:
    """Return the rows of an INSERT in their order."""
    assert isinstance(plan, Insert), plan
    bound = bind_relation(plan.source, parameter_bindings([], lambda name: 0))
    columns = evaluate_small(bound, lambda _: NOTHING).columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


NOTHING = SmallRows((), np.ones(0, np.int64))

HOSTILE = [
    "VALUES (1" + " " * 200_000,
    "VALUES (1" + " -- x\n" * 40_000,
    "VALUES (1" + "/**/" * 60_000,
    "VALUES (1)" + ",(1)" * 60_000 + ",(" + "(" * 60_000,
    "VALUES (1)" + ", ('" + "''" * 100_000,
    "VALUES ('" + "x" * 200_000,
    "VALUES (E'" + "\\'" * 100_000,
    "VALUES ($$" + "$ " * 100_000,
    "VALUES (" * 30_000,
    "SELECT 1 IN (" * 20_000,
    "SELECT (1) IN ((" * 20_000,
    "VALUES " + "(x), " * 50_000,
    "VALUES (1" + "::int" * 50_000,
    "VALUES (a" + ".a" * 50_000,
    "VALUES (a" + " a" * 50_000,
    "VALUES (1), " + "(1::int), (1::text), " * 10_000 + "('",
    "VALUES " + "".join(f"(1::t{i}), " for i in range(20_000)) + "(1)",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:20])
def test_hostile_text_is_searched_in_time_of_its_length(text: str) -> None:
    half = text[: len(text) // 2]
    take_out(half, 0, 1000)
    took_half = seconds_of(lambda: take_out(half, 0, len(half)))
    took = seconds_of(lambda: take_out(text, 0, len(text)))
    assert took < 4 * took_half + 0.05
    assert took < 1
