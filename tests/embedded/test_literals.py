import datetime
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from foreshore.embedded.literals import (
    UndefinedParameter,
    literal,
    only_statement,
    qualified_name,
    text_literal,
    with_parameters,
    without_end,
)
from foreshore.errors import DatabaseError, SyntaxError_


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "NULL"),
        (True, "true"),
        (-5, "(-5)"),
        (1.5, "'1.5'::double precision"),
        (float("nan"), "'nan'::double precision"),
        (Decimal("1.50"), "'1.50'::numeric"),
        ("it's", "'it''s'"),
        (r"a\b'", r" E'a\\b'''"),
        (b"\x01\xff", r"'\x01ff'::bytea"),
        (datetime.date(2020, 1, 2), "'2020-01-02'::date"),
        (datetime.datetime(2020, 1, 2, 3), "'2020-01-02T03:00:00'::timestamp"),
        (
            datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
            "'2020-01-02T00:00:00+00:00'::timestamptz",
        ),
        (datetime.timedelta(days=-1, microseconds=5), "'-1 days 0.000005 seconds'::interval"),
        (uuid.UUID(int=1), "'00000000-0000-0000-0000-000000000001'::uuid"),
        ({"a": "b'"}, "'{\"a\": \"b''\"}'::jsonb"),
        ([1, None], "ARRAY[(1), NULL]"),
        ([], "'{}'"),
        (pd.NA, "NULL"),
        (pd.NaT, "NULL"),
        (np.int64(4), "(4)"),
        (np.array([1, 2]), "ARRAY[(1), (2)]"),
        (pd.Series(["a"]), "ARRAY['a']"),
        (pa.array([1, None]), "ARRAY[(1), NULL]"),
        (pa.scalar(1.5), "'1.5'::double precision"),
        (np.float64(1.5), "'1.5'::double precision"),
        (np.datetime64("2024-01-02"), "'2024-01-02'::date"),
        (np.datetime64("2024-01-02", "ns"), "'2024-01-02T00:00:00'::timestamp"),
        (
            np.array(["2024-01-02", "NaT"], "M8[ns]"),
            "ARRAY['2024-01-02T00:00:00'::timestamp, NULL]",
        ),
        (np.timedelta64(5000, "ns"), "'0 days 0.000005 seconds'::interval"),
        ({"a": np.int64(1)}, "'{\"a\": 1}'::jsonb"),
        (
            {"a": [Decimal("1.10"), {"b": Decimal("1e40")}]},
            f"""'{{"a": [1.10, {{"b": {10**40}}}]}}'::jsonb""",
        ),
        ({"a": datetime.date(2024, 2, 3)}, """'{"a": "2024-02-03"}'::jsonb"""),
        ({"a": datetime.datetime(2024, 2, 3, 4, 5)}, """'{"a": "2024-02-03T04:05:00"}'::jsonb"""),
        (
            {"a": pd.Timestamp("2024-02-03"), "b": pd.NaT},
            """'{"a": "2024-02-03T00:00:00", "b": null}'::jsonb""",
        ),
        (
            {"a": np.datetime64("2024-02-03T04:05:00.5", "ns")},
            """'{"a": "2024-02-03T04:05:00.500000"}'::jsonb""",
        ),
        ({"a": datetime.time(4, 5)}, """'{"a": "04:05:00"}'::jsonb"""),
        ({"a": uuid.UUID(int=1)}, """'{"a": "00000000-0000-0000-0000-000000000001"}'::jsonb"""),
        (
            {"a": [[1, (2, [])], np.array([1.5]), None, True, {}]},
            """'{"a": [[1, [2, []]], [1.5], null, true, {}]}'::jsonb""",
        ),
        (
            {1: 2, None: 3, False: 4, 1.5: "x", datetime.date(2024, 2, 3): 0},
            """'{"1": 2, "null": 3, "false": 4, "1.5": "x", "2024-02-03": 0}'::jsonb""",
        ),
    ],
)
def test_values_become_literals(value: Any, expected: str) -> None:
    assert literal(value) == expected


def test_scalars_of_numpy_are_their_values() -> None:
    numpy = pytest.importorskip("numpy")
    assert literal(numpy.int64(3)) == "(3)"


def test_value_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(DatabaseError, match="type object"):
        literal(object())
    with pytest.raises(DatabaseError, match="0x00"):
        literal("a\0b")


@pytest.mark.parametrize(
    "text",
    ["'$1'", "'it''s $1'", r"E'\'$1'", '"$1"', "$$ $1 $$", "$a$ $1 $$ $a$", "-- $1\n", "/* $1 */", "a$1"],
)  # fmt: skip
def test_parameters_are_not_looked_for_in_texts_names_and_comments(text: str) -> None:
    assert with_parameters(f"SELECT {text}, $1", [7]) == f"SELECT {text}, (7)"


def test_each_parameter_is_given_and_used() -> None:
    assert with_parameters("SELECT $2, $1, $2", [1, "x"]) == "SELECT 'x', (1), 'x'"
    with pytest.raises(UndefinedParameter, match=r"no parameter \$2"):
        with_parameters("SELECT $2", [1])
    with pytest.raises(UndefinedParameter, match="1 of 2"):
        with_parameters("SELECT $1", [1, 2])


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_text_never_leaves_its_literal(text: str) -> None:
    written = text_literal(text)
    assert len(sqlglot.tokenize(f"SELECT {written}", read="postgres")) == 2
    escaped = written.startswith(" E'")
    body = written.strip().removeprefix("E")[1:-1].replace("''", "'")
    assert (body.replace("\\\\", "\\") if escaped else body) == text


def test_names_are_quoted_by_part() -> None:
    assert qualified_name('s.a"b') == '"s"."a""b"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1; -- x", "SELECT 1"),
        ("SELECT 1 ; ; /* y */\n", "SELECT 1 "),
        ("SELECT ';' -- ;", "SELECT ';' -- ;"),
        ("SELECT 1; SELECT 2", "SELECT 1; SELECT 2"),
        ("SELECT 1; 2", "SELECT 1; 2"),
        ("SELECT 1", "SELECT 1"),
    ],
)
def test_the_end_of_a_statement_goes(text: str, expected: str) -> None:
    assert without_end(text) == expected


def test_parameters_by_name_are_in_place() -> None:
    text = "SELECT $x + $y_2, '$x', $tag$ $x $tag$, a$x -- $x"
    placed = "SELECT (1) + 'z', '$x', $tag$ $x $tag$, a$x -- $x"
    assert with_parameters(text, {"x": 1, "y_2": "z"}) == placed
    with pytest.raises(UndefinedParameter, match=r"no parameter \$y"):
        with_parameters("SELECT $y", {"x": 1})
    with pytest.raises(UndefinedParameter, match="uses 0 of 1"):
        with_parameters("SELECT ?", [1])
    for value in ("a", 1):
        with pytest.raises(TypeError, match="params is a list of values"):
            with_parameters("SELECT $1", value)  # type: ignore[arg-type]


def test_several_statements_have_no_rows() -> None:
    assert only_statement("SELECT ';'; -- end") == "SELECT ';'"
    with pytest.raises(SyntaxError_, match="several statements"):
        only_statement("SELECT 1; SELECT 2")
