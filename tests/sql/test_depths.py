"""Texts of any depth are planned or refused with 54001, and never end the process.

They are planned on threads as the server's, in a process of their own where they are very deep.
"""

import subprocess
import sys
from collections.abc import Callable

import pytest

from foreshore.deep_trees import DeepThreads
from foreshore.errors import DatabaseError
from foreshore.sql.parse.parse import parse
from foreshore.sql.planner import plan_statement
from tests.sql.catalog import TestCatalog

Write = Callable[[int], str]


def nested(before: str, inner: str, after: str, end: str = "") -> Write:
    """Return what writes `inner` so many levels deep."""
    return lambda depth: f"SELECT {before * depth}{inner}{after * depth}{end}"


KINDS: dict[str, Write] = {
    "parentheses": nested("(", "1", ")"),
    "parentheses of FROM": lambda n: f"SELECT 1 FROM {'(' * n}t{')' * n}",
    "subqueries": nested("(SELECT ", "1", ")"),
    "subqueries of FROM": nested("* FROM (SELECT ", "1", ") AS q"),
    "EXISTS": nested("EXISTS (SELECT ", "1", ")"),
    "IN": nested("true IN (SELECT ", "true", ")"),
    "LATERAL": lambda n: f"SELECT 1 FROM t, {'LATERAL (SELECT 1 FROM t, ' * n}t AS u{') AS q' * n}",
    "WITH": lambda n: "WITH q AS (" * n + "SELECT 1" + ") SELECT * FROM q" * n,
    "UNION": lambda n: "SELECT 1 UNION (" * n + "SELECT 1" + ")" * n,
    "joins": lambda n: (
        "SELECT 1 FROM " + "(" * n + "t" + "".join(f" JOIN t AS t{i} ON true)" for i in range(n))
    ),
    "calls": nested("abs(", "1", ")"),
    "COALESCE": nested("coalesce(1, ", "1", ")"),
    "CASE": nested("CASE WHEN true THEN ", "1", " END"),
    "CAST": nested("cast(", "1", " AS int)"),
    "casts": nested("", "1", "::int"),
    "subscripts": nested("", "s", "[1]", " FROM t"),
    "fields": nested("", "(ROW(1))", ".f1"),
    "dots": lambda n: f"SELECT a{'.a' * n} FROM t",
    "ARRAY": nested("ARRAY[", "1", "]"),
    "ROW": nested("ROW(", "1", ")"),
    "NOT": nested("NOT ", "true", ""),
    "signs": nested("- ", "1", ""),
    "powers": nested("", "2", "^1"),
    "BETWEEN": nested("1 BETWEEN ", "1", " AND 1"),
    "OR in AND": nested("(true OR true AND ", "true", ")"),
    "COLLATE": nested("", "'a'", ' COLLATE "C"'),
    "IS NULL": nested("", "1", " IS NULL"),
    "AT TIME ZONE": nested("", "now()", " AT TIME ZONE 'UTC'"),
    "arrows": nested("", "'{}'::jsonb", "->'a'"),
    "GROUPING SETS": lambda n: f"SELECT 1 FROM t GROUP BY {'GROUPING SETS (' * n}a{')' * n}",
    "aggregates": nested("sum(", "a", ")", " FROM t"),
    "comments": lambda n: f"SELECT 1 {'/*' * n}{'*/' * n}",
    "array literals": lambda n: f"SELECT '{'{' * n}1{'}' * n}'::int[]",
    "jsonb": lambda n: f"SELECT '{'[' * n}{']' * n}'::jsonb",
    "objects of jsonb": lambda n: f"""SELECT '{'{"a":' * n}1{"}" * n}'::jsonb""",
    "jsonpath": lambda n: f"SELECT '{{}}'::jsonb @? '$ ? ({'(' * n}1 == 1{')' * n})'",
    "regular expressions": lambda n: f"SELECT 'a' ~ '{'(' * n}a{')' * n}'",
    "EXPLAIN": lambda n: "EXPLAIN " * n + "SELECT 1",
    "checks": lambda n: f"CREATE TABLE w (a int CHECK ({'(' * n}true{')' * n}))",
    "defaults": lambda n: f"CREATE TABLE w (a int DEFAULT {'(' * n}1{')' * n})",
}
REFUSED = ("54001", "42601", "42804", "42809", "42803", "2202E", "22P02", "54000", "2201B", "0A000")
SMALL = (10, 1_000)


def outcome(text: str) -> str:
    """Return how planning a text ends: with a plan, or with a SQLSTATE."""
    catalog = TestCatalog("CREATE TABLE t (a int, s text)")
    try:
        for statement in parse(text):
            plan_statement(statement, catalog)
    except DatabaseError as error:
        return error.sqlstate
    return "planned"


@pytest.mark.parametrize("kind", KINDS)
def test_deep_text_is_planned_or_refused(kind: str) -> None:
    with DeepThreads(1, "planning") as thread:
        for depth in SMALL:
            found = thread.submit(outcome, KINDS[kind](depth)).result()
            assert found == "planned" or found in REFUSED, (depth, found)


CHILD = """
from foreshore.deep_trees import DeepThreads
from tests.sql.test_depths import KINDS, outcome
for kind, write in KINDS.items():
    print(kind, end=": ", flush=True)
    print(DeepThreads(1, "planning").submit(outcome, write({depth})).result(), flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize("depth", [119, 5_000, 20_000])
def test_very_deep_texts_do_not_end_the_process(depth: int) -> None:
    child = [sys.executable, "-c", CHILD.format(depth=depth)]
    found = subprocess.run(child, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, (found.stdout[-100:], found.stderr[-2000:])
    outcomes = dict(line.split(": ") for line in found.stdout.splitlines())
    assert outcomes.keys() == KINDS.keys()
    wrong = {kind: end for kind, end in outcomes.items() if end not in ("planned", *REFUSED)}
    assert not wrong
