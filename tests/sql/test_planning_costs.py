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
    # Those of less text each: most are one construct that a list of the grammar holds.
    "strings of IN, not": around("SELECT a FROM t WHERE s NOT IN (", listed("'x#'"), ")"),
    "rows of IN": around("SELECT a FROM t WHERE (a, b) IN (", listed("(#, #)"), ")"),
    "arguments of GREATEST": around("SELECT greatest(", listed("a + #"), ") FROM t"),
    "fields of ROW": around("SELECT ROW(", listed("a + #"), ") FROM t"),
    "rows of ANY": around("SELECT a FROM t WHERE a = ANY (ARRAY[", listed("#"), "])"),
    "arrays of an array": around("SELECT ARRAY[", listed("ARRAY[a, #]"), "] FROM t"),
    "columns of VALUES": around("VALUES (", listed("#"), ")"),
    "VALUES in FROM": around("SELECT * FROM (VALUES ", listed("(#, 'x#')"), ") AS v (i, x)"),
    "joins": around("SELECT 1 FROM t", listed(" JOIN t AS t# ON t#.a = t.a", "")),
    "outer joins": around("SELECT 1 FROM t", listed(" LEFT JOIN t AS t# ON t#.a = t.a", "")),
    "GROUPING SETS": around("SELECT count(*) FROM t GROUP BY GROUPING SETS (", listed("(a)"), ")"),
    "UNION": listed("SELECT #", " UNION "),
    "INTERSECT": listed("SELECT a FROM t", " INTERSECT "),
    "EXCEPT": listed("SELECT a + # FROM t", " EXCEPT "),
    "LIKE": around("SELECT 1 FROM t WHERE ", listed("s LIKE 'x#%'", " OR ")),
    "BETWEEN": around("SELECT 1 FROM t WHERE ", listed("a BETWEEN # AND b", " OR ")),
    "IS NULL": around("SELECT 1 FROM t WHERE ", listed("(a + #) IS NULL", " OR ")),
    "ranges of one column": around("SELECT 1 FROM t WHERE ", listed("a > #", " AND ")),
    "equal columns": around("SELECT 1 FROM t WHERE ", listed("a = b", " AND ")),
    "nested parentheses": lambda n: "SELECT " + "(" * n + "1" + ")" * n,
    "nested calls": lambda n: "SELECT " + "abs(" * n + "a" + ")" * n + " FROM t",
    "nested CASE": lambda n: "SELECT " + "CASE WHEN a > 1 THEN " * n + "1" + " END" * n + " FROM t",
    "nested subqueries": lambda n: "SELECT * FROM " + "(SELECT * FROM " * n + "t" + ") AS q" * n,
    "nested ARRAY": lambda n: "SELECT " + "ARRAY[" * n + "1" + "]" * n,
    "nested WITH": lambda n: "WITH c AS (" * n + "SELECT 1" + ") SELECT * FROM c" * n,
    "nested comments": lambda n: "SELECT 1" + "/*" * n + "*/" * n,
    "nested jsonb": lambda n: "SELECT '" + "[" * n + "]" * n + "'::jsonb",
    "nested array literal": lambda n: "SELECT '" + "{" * n + "}" * n + "'::int[]",
    "nested jsonpath": lambda n: "SELECT '" + "(" * n + "1" + ")" * n + "'::jsonpath",
    "nested groups of a pattern": lambda n: "SELECT 'x' ~ '" + "(" * n + "x" + ")" * n + "'",
    "NOT": lambda n: "SELECT " + "NOT " * n + "true",
    "-": lambda n: "SELECT " + "- " * n + "1",
    "@": lambda n: "SELECT " + "@ " * n + "1",
    "*": around("SELECT ", listed("a", " * "), " FROM t"),
    "names with dots": around("SELECT ", listed("a", ".")),
    "subscripts": around("SELECT (ARRAY[1])", listed("[1]", "")),
    "COLLATE": around("SELECT s", listed(' COLLATE "C"', ""), " FROM t"),
    "AT TIME ZONE": around("SELECT now()", listed(" AT TIME ZONE 'UTC'", "")),
    "IS TRUE": around("SELECT true", listed(" IS TRUE", "")),
    "->": around("SELECT '{}'::jsonb", listed(" -> 'k#'", "")),
    "steps of jsonpath": around("SELECT '$", listed(".k#", ""), "'::jsonpath"),
    "branches of a pattern": around("SELECT s ~ '", listed("x#", "|"), "' FROM t"),
    "Unicode escapes": around("SELECT U&'", listed("\\0061", ""), "'"),
    "dollar quotes": around("SELECT $q$", listed("$x# ", ""), "$q$"),
    "strings on lines": around("SELECT ", listed("'x#'", "\n")),
    "parameters": around("SELECT coalesce(", lambda n: listed("$#::int")(n + 1)[9:], ")"),
    "types of PREPARE": around("PREPARE p (", listed("int"), ") AS SELECT 1"),
    "arguments of EXECUTE": around("EXECUTE p (", listed("#"), ")"),
    "assignments of UPDATE": around("UPDATE t SET ", listed("a = #")),
    "assignments of a row": around("UPDATE t SET (", listed("a"), ") = ROW(1)"),
    "columns of INSERT": around("INSERT INTO t (", listed("a"), ") VALUES (1)"),
    "casts of INSERT": around("INSERT INTO t VALUES ", listed("('#'::int, #, NULL)")),
    "subqueries of INSERT": around("INSERT INTO t VALUES ", listed("((SELECT #), 1, 'x')")),
    "RETURNING": around("INSERT INTO t VALUES (1) RETURNING ", listed("a + #")),
    "tables of TRUNCATE": around("TRUNCATE ", listed("t")),
    "tables of LOCK": around("LOCK TABLE ", listed("t")),
    "names of SET": around("SET search_path = ", listed("s#")),
    "unique keys": around("CREATE TABLE w (c int, ", listed("UNIQUE (c)"), ")"),
    "checks of a column": around("CREATE TABLE w (c int ", listed("CHECK (c <> #)", " "), ")"),
    "defaults": around("CREATE TABLE w (", listed("c# int DEFAULT #"), ")"),
    "keys of an index": around("CREATE INDEX i ON t (", listed("a"), ")"),
    "columns of a view": around("CREATE VIEW w (", listed("c#"), ") AS SELECT 1"),
    "parameters of a function": around(
        "CREATE FUNCTION f(", listed("p# int"), ") RETURNS int LANGUAGE sql AS 'SELECT 1'"
    ),
    "body of a function": around(
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT ", listed("#", " + "), "'"
    ),
    "statements of a function": around(
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS '", listed("SELECT #", "; "), "'"
    ),
    "fields of a type": around("CREATE TYPE ct AS (", listed("f# int"), ")"),
    "roles of GRANT": around("GRANT SELECT ON t TO ", listed("r#")),
    "options of COPY": around("COPY t TO STDOUT (", listed("FORMAT csv"), ")"),
    "columns of COPY": around("COPY t (", listed("a"), ") TO STDOUT"),
    "fetches": listed("FETCH 1 FROM c", "; "),
    "EXPLAIN": around("EXPLAIN SELECT a FROM t WHERE ", listed("a = #", " OR ")),
    "elements of unnest": around("SELECT * FROM unnest(ARRAY[", listed("#"), "])"),
    "names of a row type": around(
        "SELECT 1 FROM json_to_record('{}') AS j (", listed("c# int"), ")"
    ),
    "blanks": around("SELECT", listed(" ", ""), "1"),
    "semicolons": listed("", ";"),
    "digits": around("SELECT ", listed("1", "")),
    "digits of a fraction": around("SELECT 0.", listed("1", "")),
    "open parentheses": lambda n: "SELECT " + "(" * n,
    "open comments": lambda n: "SELECT 1 " + "/* " * n,
    "open dollar quotes": listed("$a#$", " "),
    "open brackets": lambda n: "SELECT a" + "[" * n,
    "open CASE": lambda n: "SELECT " + "CASE " * n,
    "words": listed("select", " "),
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
            if error.sqlstate == "XX000":
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
    "kind",
    [
        "WITH",
        "keys of ORDER BY",
        "keys of PARTITION BY",
        "checks of a table",
        "casts",
        "names with dots",
    ],
)
def test_small_text(catalog: TestCatalog, kind: str) -> None:
    check(catalog, kind, 32, 3)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_large_text(catalog: TestCatalog, kind: str) -> None:
    check(catalog, kind, 500, 4)
