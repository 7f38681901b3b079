"""Options as pg_dump writes them mean what they mean in words."""

import msgspec
import pytest

from foreshore.errors import DatabaseError
from foreshore.sql import ast
from foreshore.sql.parse.parse import parse
from foreshore.sql.rewrite.parentheses import without_enclosing


def options_of(options: str) -> dict[str, object]:
    """Return the syntax of a materialized view with these options, without offsets."""
    (statement,) = parse(f"CREATE MATERIALIZED VIEW v WITH ({options}) AS SELECT 1")
    assert isinstance(statement.ast, ast.CreateViewStatement)
    found = msgspec.to_builtins(statement.ast)
    return {
        field: _without_offsets(found[field])
        for field in found
        if field not in ("query", "at", "end")
    }


def _without_offsets(found: object) -> object:
    if isinstance(found, dict):
        places = ("at", "start", "end", "text")
        return {key: _without_offsets(each) for key, each in found.items() if key not in places}
    if isinstance(found, list | tuple):
        return [_without_offsets(each) for each in found if not isinstance(each, int)]
    return found


@pytest.mark.parametrize(
    ("words", "dumped"),
    [
        ("RETAIN HISTORY FOR '1 day'", "retain_history='1 day'"),
        ("MEMORY LIMIT = '1 GB'", "memory_limit='1 GB'"),
        ("HYDRATE = 'local'", "hydrate=local"),
        ("TARGET LAG = DOWNSTREAM", "target_lag=downstream"),
        ("TARGET LAG = '5s'", "target_lag='5s'"),
        ("REFRESH EVERY '1 h' ALIGNED TO '2026-01-01'", "refresh='EVERY ''1 h'' ALIGNED TO ''2026-01-01'''"),
        ("REFRESH AT CREATION, REFRESH AT '2030-01-01'", "refresh='AT CREATION', refresh='AT ''2030-01-01'''"),
        ("REFRESH AT CREATION, REFRESH POLICY = FULL", "refresh='AT CREATION', refresh_policy='full'"),
        ("ASSERT NOT NULL = a, ASSERT NOT NULL = \"B\"", "assert_not_null='a, \"B\"'"),
        ("ASSERT NOT NULL = a", "assert_not_null=a"),
        ("ON ERROR = SKIP", "on_error=skip"),
    ],
)  # fmt: skip
def test_dumped_option_means_the_same(words: str, dumped: str) -> None:
    assert options_of(words) == options_of(dumped) != options_of("ON ERROR = FAIL")


@pytest.mark.parametrize(
    "options",
    [
        "retain_history='1 day', RETAIN HISTORY FOR '1 day'",
        "cluster=a, cluster=b",
        "refresh='AT CREATION and more'",
        "expect='CONSTRAINT c EXPECT (a > 0) garbage'",
        "expect='CONSTRAINT c EXPECT (a > 0'",
    ],
)
def test_wrong_dumped_option_is_a_syntax_error(options: str) -> None:
    with pytest.raises(DatabaseError) as raised:
        options_of(options)
    assert raised.value.sqlstate == "42601"


@pytest.mark.parametrize(
    ("text", "without"),
    [("((a > 0))", "a > 0"), ("(a) > (0)", "(a) > (0)"), ("( f(')') )", "f(')')"), ("a", "a")],
)
def test_enclosing_parentheses_are_taken_away(text: str, without: str) -> None:
    assert without_enclosing(text) == without
