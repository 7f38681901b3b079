"""Parsing: where statements end, their trees, and texts that are rejected."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    StatementTooComplex,
    SyntaxError_,
)
from foreshore.sql import ast
from foreshore.sql.parse.dialects import translated
from foreshore.sql.parse.instead import INSTEAD
from foreshore.sql.parse.lexer import tokenize
from foreshore.sql.parse.parse import parse, parse_expression
from foreshore.sql.parse.script import Script
from tests.effort import examples


def test_text_splits_at_semicolons_outside_strings_and_comments() -> None:
    text = "select ';' ; -- ; x\n ;; /* ; /* ; */ */ select $q$;$q$; select \";\" from t"
    assert [(s.text, s.position) for s in parse(text)] == [
        ("select ';'", 0),
        ("select $q$;$q$", text.index("select $q$")),
        ('select ";" from t', text.index('select ";"')),
    ]


@pytest.mark.parametrize("text", ["", "  ", ";", " ; ;", "-- x", "/* x */ ;"])
def test_empty_text_has_no_statements(text: str) -> None:
    assert parse(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "select " + "(" * 100_000,
        "select " + "(" * 5000 + "1" + ")" * 5000,
        "select " + "((select " * 3000 + "1" + "))" * 3000,
        "select " + "1 + " * 100_000 + "1",
        "select " + "not " * 50_000 + "true",
        "select " + "- " * 50_000 + "1",
        "select 1" + "::int" * 50_000,
        "select " + "case when true then " * 3000 + "1" + " end" * 3000,
        "select * from " + "(" * 3000 + "t" + ")" * 3000,
        "select 1" + " union select 1 except select 1" * 3000,
        "select " + "array[" * 3000 + "1" + "]" * 3000,
        "select * from t" + " join t on true" * 3000,
        "select " + "f(" * 3000 + "1" + ")" * 3000,
        "select * from a join " * 2000 + "b",
    ],
    ids=lambda text: text[:30],
)
def test_deep_nesting_is_an_error(text: str) -> None:
    with pytest.raises((StatementTooComplex, SyntaxError_)):
        parse(text)


def test_feature_that_is_not_supported_is_no_syntax_error() -> None:
    with pytest.raises(FeatureNotSupported, match="TIMESTAMP FOR MATERIALIZED VIEW"):
        parse("explain timestamp for materialized view v")


@pytest.mark.parametrize("word", INSTEAD)
def test_create_of_another_system_tells_what_there_is_instead(word: str) -> None:
    for create in ("create", "create or replace"):
        with pytest.raises(FeatureNotSupported, match=f"CREATE {word.upper()} ") as raised:
            parse(f"{create} {word} x")
    hint = raised.value.hint
    assert hint
    for named in re.findall(r"CREATE [A-Z]+(?: VIEW)?", hint):
        with pytest.raises(SyntaxError_):  # for want of the rest
            parse(named)


def test_long_list_is_not_nesting() -> None:
    parse(f"select * from t where a in ({', '.join(map(str, range(20_000)))})")
    parse("insert into t values " + ", ".join(["(1, 'x')"] * 20_000))
    parse("select 1" + " union all select 1" * 300)
    parse("select * from t where " + " or ".join(["a = 1"] * 20_000))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a or b and not c", "(a or (b and (not c)))"),
        ("not a = b", "(not (a = b))"),
        ("a = b is null", "((a = b) is null)"),
        ("a < b + c * d ^ e", "(a < (b + (c * (d ^ e))))"),
        ("-2 ^ 2", "(-2 ^ 2)"),
        ("- a ^ 2", "((- a) ^ 2)"),
        ("a - b - c", "((a - b) - c)"),
        ("a || b = c || d", "((a || b) = (c || d))"),
        ("a -> b -> c + d", "((a -> b) -> (c + d))"),
        ("a <-1", "(a < -1)"),
        ("1e3-1", "(1e3 - 1)"),
        ("1e1-2e2-3.5e-1+5", "(((1e1 - 2e2) - 3.5e-1) + 5)"),
        ("- a::int", "(- (a :: int4))"),
        ("a::int[1]", "(a :: int4[])"),
        ("a like b || c and d", "((a like (b || c)) and d)"),
        ("a between b and c and d", "((a between b c) and d)"),
        ("a in (1) = b", "((a in 1) = b)"),
        ("a operator(pg_catalog.+) b * c", "(a + (b * c))"),
        ("a at time zone b", "timezone(b, a)"),
    ],
)
def test_operators_have_postgresql_precedence(text: str, meaning: str) -> None:
    assert shown(parse_expression(text)) == meaning


def test_number_ends_as_in_postgresql() -> None:
    text = "select '1e1-1', \"1e1-1\", 1e1-1e2-3 -- 1e1-1\n, x"
    tokens, _ = tokenize(text)
    parts = [text[token.start : token.end] for token in tokens if token.kind == "number"]
    assert parts == ["1e1", "1e2", "3"]
    assert text[tokens[-2].start : tokens[-2].end] == "x"


def shown(expr: object) -> str:
    """Return the tree with all parentheses."""
    match expr:
        case ast.ColumnRef(parts=parts):
            return ".".join(parts)
        case ast.Number(text=text):
            return text
        case ast.Operation(operator=operator, left=None, right=right):
            return f"({operator} {shown(right)})"
        case ast.Operation(operator=operator, left=left, right=right):
            return f"({shown(left)} {operator} {shown(right)})"
        case ast.Connective(kind=kind, args=args):
            return "(" + f" {kind} ".join(map(shown, args)) + ")"
        case ast.Not(arg=arg):
            return f"(not {shown(arg)})"
        case ast.Is(arg=arg, what=what):
            return f"({shown(arg)} is {what})"
        case ast.Like(left=left, right=right):
            return f"({shown(left)} like {shown(right)})"
        case ast.Between(arg=arg, low=low, high=high):
            return f"({shown(arg)} between {shown(low)} {shown(high)})"
        case ast.InList(arg=arg, items=items):
            return f"({shown(arg)} in {' '.join(map(shown, items))})"
        case ast.CastTo(arg=arg, type=type_):
            return f"({shown(arg)} :: {type_.name[-1]}{'[]' * type_.dimensions})"
        case ast.FunctionCall(name=name, args=args):
            return f"{name[-1]}({', '.join(map(shown, args))})"
        case _:
            raise AssertionError(expr)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        (r"E'a\n\x41\101\u00e9\\'", "a\nAA\u00e9\\"),
        (r"U&'d\0061t\+000061'", "data"),
        (r"U&'d!0061t!+000061!!\' UESCAPE '!'", "data!\\"),
        (r"U&'a''\D83D\DE00'", "a'\U0001f600"),
        (r"E'\ud83d\ude00\U0001F600'", "\U0001f600\U0001f600"),
        ("'a'\n  'b'", "ab"),
        ("$$a'b$$", "a'b"),
        ("$x$ $$ $x$", " $$ "),
    ],
)
def test_string_constant_is_decoded(text: str, value: str) -> None:
    tree = parse_expression(text)
    assert isinstance(tree, ast.String)
    assert tree.value == value


@settings(max_examples=examples(300))
@given(st.text(alphabet="ab1 '\"$();,.:-+*/<>=\\\n%[]éE&xU", max_size=40))
def test_any_text_parses_or_raises_database_error(text: str) -> None:
    outcome: object = None
    try:
        outcome = parse("select " + text)
    except DatabaseError as error:
        outcome = error
    if isinstance(outcome, DatabaseError):
        assert outcome.sqlstate[:2] in ("42", "0A", "54", "22")
        assert outcome.position is None or 1 <= outcome.position <= len(text) + 8
    else:
        assert isinstance(outcome, list)
        assert all(s.whole[s.position :].startswith(s.text) for s in outcome)


@pytest.mark.parametrize(
    ("written", "sqlstate"),
    [
        (r"E'\xff'", "22021"),
        (r"E'a\000'", "22021"),
        (r"E'\u12'", "22025"),
        (r"E'\ud800'", "42601"),
        (r"E'\ude00\ud83d'", "42601"),
        (r"U&'\d83da'", "42601"),
        (r"U&'\12'", "42601"),
        (r"U&'x' UESCAPE '+'", "42601"),
    ],
)
def test_invalid_escape_is_rejected(written: str, sqlstate: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        parse(f"SELECT {written}")
    assert refused.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    "text",
    [
        "table t",
        "(table t) union table u",
        "select * from (table t order by 1) as x",
        "select (table t), array(table t), 1 in (table t), exists (table t), 1 = any (table t)",
        "with a as (table t) table a",
    ],
)
def test_table_command_is_allowed_as_query(text: str) -> None:
    parse(text)


@pytest.mark.parametrize("text", ["from t", "select * from (from t) as x", "select (from t)"])
def test_query_starting_with_from_is_rejected(text: str) -> None:
    with pytest.raises(SyntaxError_):
        parse(text)


@pytest.mark.parametrize("column", ['"group"', 't."group"', '"by"', "by"])
def test_group_by_column_named_like_clause_is_accepted(column: str) -> None:
    (statement,) = parse(f"SELECT 1 FROM t GROUP BY {column}")
    assert isinstance(statement.ast, ast.SelectStatement)
    for text in ("SELECT 1 FROM t GROUP BY", "SELECT 1 FROM t GROUP BY HAVING true"):
        with pytest.raises(SyntaxError_):
            parse(text)


@pytest.mark.parametrize(
    "text",
    ["create view " + " as" * 50_000, "create view v" + " " * 100_000 + "x", " " * 100_000 + "x"],
)
def test_head_of_view_in_other_dialect_is_found_in_linear_time(text: str) -> None:
    began = time.process_time()
    with pytest.raises(SyntaxError_):
        Script("spark", text)
    assert time.process_time() - began < 3


def test_translations_of_long_texts_are_not_kept() -> None:
    translated.cache_clear()
    Script("spark", "select '" + "x" * 20_000 + "'")
    assert not translated.cache_info().currsize
    Script("spark", "select 1")
    assert translated.cache_info().currsize == 1
