"""The processor time that a text costs grows with its length and not faster, for each kind of text.

Twice the text costs at most 2.3 times the time. It is measured over several doublings, since one
alone is lost in what the machine does beside.
"""

from collections.abc import Callable
from statistics import median

import pytest

from foreshore.errors import DatabaseError
from foreshore.sql.parse.parse import parse
from foreshore.sql.planner import plan_statement
from tests.processor_time import seconds_of
from tests.sql.catalog import TestCatalog

DOUBLED = 2.3


def listed(each: str, separator: str = ", ") -> Callable[[int], str]:
    """Return what writes `each` so many times, with the number of each in place of #."""
    return lambda n: separator.join([each.replace("#", str(i)) for i in range(n)])


def around(before: str, inner: Callable[[int], str], after: str = "") -> Callable[[int], str]:
    """Return what writes a text around a list."""
    return lambda n: before + inner(n) + after


KINDS: dict[str, Callable[[int], str]] = {
    "integers of IN": around("SELECT a FROM t WHERE a IN (", listed("#"), ")"),
    "strings of IN": around("SELECT a FROM t WHERE s IN (", listed("'x#'"), ")"),
    "numbers of IN": around("SELECT a FROM t WHERE a IN (", listed("#.5"), ")"),
    "expressions of IN": around("SELECT a FROM t WHERE a IN (", listed("b + #"), ")"),
    "rows of VALUES": around("VALUES ", listed("(#, 'x#')")),
    "expressions of VALUES": around("VALUES ", listed("(# + 1, upper('x#'))")),
    "rows of INSERT": around("INSERT INTO t VALUES ", listed("(#, 1, 'x#')")),
    "OR": around("SELECT a FROM t WHERE ", listed("a = # AND b > #", " OR ")),
    "AND": around("SELECT a FROM t WHERE ", listed("a <> #", " AND ")),
    "AND of OR": around("SELECT a FROM t WHERE ", listed("(a > # OR b > #)", " AND ")),
    "branches of CASE": around("SELECT CASE ", listed("WHEN a = # THEN #", " "), " END FROM t"),
    "WITH": around("WITH ", listed("c# AS (SELECT # AS x)"), " SELECT * FROM c0"),
    "chained WITH": lambda n: (
        "WITH c0 AS (SELECT a FROM t)"
        + "".join(f", c{i} AS (SELECT a FROM c{i - 1})" for i in range(1, n))
        + f" SELECT * FROM c{n - 1}"
    ),
    "elements of ARRAY": around("SELECT ARRAY[", listed("a + #"), "] FROM t"),
    "elements of an array literal": around("SELECT '{", listed("#"), "}'::int[]"),
    "arguments of COALESCE": around("SELECT coalesce(", listed("nullif(a, #)"), ") FROM t"),
    "lines of a comment": around("SELECT 1", listed("\n-- abc", ""), "\n"),
    "comments": around("SELECT 1", listed("/* abc */", "")),
    "characters of a name": around('SELECT 1 AS "', listed("yyyyyyyyyy", ""), '"'),
    "characters of a string": around("SELECT '", listed("xxxxxxxxxx", ""), "'"),
    "quotes of a string": around("SELECT '", listed("''", ""), "'"),
    "escapes of a string": around("SELECT E'", listed("\\n''x", ""), "'"),
    "text of COMMENT": around("COMMENT ON TABLE t IS '", listed("xxxxxxxxxx", ""), "'"),
    "members of jsonb": around("SELECT '{", listed('"k#": #'), "}'::jsonb"),
    "statements": listed("SELECT 1", "; "),
    "same keys of GROUP BY": around("SELECT count(*) FROM t GROUP BY ", listed("a")),
    "same keys of ORDER BY": around("SELECT a FROM t ORDER BY ", listed("a")),
    "windows": around("SELECT 1 FROM t WINDOW ", listed("w# AS (PARTITION BY a)")),
    "casts": around("SELECT 1", listed("::int", "")),
    "WHEN of MERGE": around(
        "MERGE INTO t USING t AS u ON t.a = u.a ",
        listed("WHEN MATCHED AND u.b = # THEN DO NOTHING", " "),
    ),
    "checks of a table": around("CREATE TABLE w (c int, ", listed("CHECK (c <> #)"), ")"),
    "labels of a type": around("CREATE TYPE e AS ENUM (", listed("'l#'"), ")"),
    "tables of GRANT": around("GRANT SELECT ON ", listed("t"), " TO PUBLIC"),
    "tables of DROP": around("DROP TABLE IF EXISTS ", listed("nope#")),
    "conditions of a view": around(
        "CREATE VIEW w AS SELECT a FROM t WHERE ", listed("a = #", " OR ")
    ),
    # Those with a bound below 32,000: what is beyond it is refused as quickly.
    "targets": around("SELECT ", listed("a + # AS c#"), " FROM t"),
    "columns of a table": around("CREATE TABLE w (", listed("c# int"), ")"),
    "keys of GROUP BY": around("SELECT count(*) FROM t GROUP BY ", listed("a + #")),
    "keys of ORDER BY": around("SELECT a FROM t ORDER BY ", listed("a + #")),
    "keys of DISTINCT ON": around("SELECT DISTINCT ON (", listed("a + #"), ") a FROM t"),
    "keys of PARTITION BY": around(
        "SELECT count(*) OVER (PARTITION BY ", listed("a + #"), ") FROM t"
    ),
    "arguments": around("SELECT concat(", listed("'x#'"), ")"),
    "+": around("SELECT ", listed("a", " + "), " FROM t"),
    "||": around("SELECT ", listed("s", " || "), " FROM t"),
    "UNION ALL": listed("SELECT #", " UNION ALL "),
}


@pytest.fixture(scope="module")
def catalog() -> TestCatalog:
    return TestCatalog("CREATE TABLE t (a int, b int, s text)")


def cost(catalog: TestCatalog, text: str, times: int) -> float:
    """Return the seconds of the processor for planning a text, which may be refused."""

    def plan() -> None:
        try:
            for statement in parse(text):
                plan_statement(statement, catalog)
        except DatabaseError as error:
            if error.sqlstate not in ("54001", "54011", "54023"):
                raise

    return median(seconds_of(plan) for _ in range(times))


def check(catalog: TestCatalog, kind: str, size: int, doublings: int) -> None:
    """Assert that a kind of text costs no more than it may from `size` over so many doublings."""
    write = KINDS[kind]
    cost(catalog, write(8), 1)  # what is made once
    for _ in range(3):  # something else may have run beside
        small, large = cost(catalog, write(size), 3), cost(catalog, write(size << doublings), 1)
        if large <= small * DOUBLED**doublings:
            return
    raise AssertionError(f"{kind}: {small:.4f} s became {large:.4f} s")


@pytest.mark.parametrize(
    "kind", ["WITH", "keys of ORDER BY", "keys of PARTITION BY", "checks of a table", "casts"]
)
def test_small_text(catalog: TestCatalog, kind: str) -> None:
    check(catalog, kind, 32, 3)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_large_text(catalog: TestCatalog, kind: str) -> None:
    check(catalog, kind, 1_000, 5)
