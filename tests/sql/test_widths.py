"""PostgreSQL's bounds on width, each at its bound and one beyond; the messages are PostgreSQL 15's."""

from collections.abc import Callable

import pytest

from foreshore.errors import DatabaseError
from foreshore.sql.parse.parse import parse
from foreshore.sql.planner import plan_statement
from tests.sql.catalog import TestCatalog

TARGETS = "target lists can have at most 1664 entries"
COLUMNS = "tables can have at most 1600 columns"
ROWS = "ROW expressions can have at most 1664 entries"
INDEX = "cannot use more than 32 columns in an index"


def listed(form: str, first: str = "") -> Callable[[int], str]:
    """Return what writes a list of so many entries, each as `form` has it, after `first`."""

    def write(count: int) -> str:
        entries = ([first] if first else []) + [form.format(i) for i in range(count - bool(first))]
        return ", ".join(entries)

    return write


numbers, named, expressions = listed("{0}"), listed("{0} AS c{0}"), listed("a + {0}")
columns, names = listed("c{0} int"), listed("c{0}")

KINDS: list[tuple[Callable[[int], str], int, str, str]] = [
    (lambda n: f"SELECT {named(n)}", 1664, "54011", TARGETS),
    (lambda n: f"SELECT * FROM (SELECT {named(n)}) AS q", 1664, "54011", TARGETS),
    (lambda n: f"WITH q AS (SELECT {named(n)}) SELECT 1 FROM q", 1664, "54011", TARGETS),
    (lambda n: f"SELECT 1 WHERE EXISTS (SELECT {named(n)})", 1664, "54011", TARGETS),
    (lambda n: f"SELECT {named(n)} UNION ALL SELECT {named(n)}", 1664, "54011", TARGETS),
    (lambda n: f"INSERT INTO t SELECT {named(n)}" if n > 9 else "", 1664, "54011", TARGETS),
    (lambda n: f"VALUES ({numbers(n)})", 1664, "54011", TARGETS),
    (lambda n: f"SELECT 1 FROM (VALUES ({numbers(n)})) AS v", 1664, "54011", TARGETS),
    (lambda n: f"UPDATE t SET a = 1 RETURNING {named(n)}", 1664, "54011", TARGETS),
    (lambda n: f"SELECT count(*) FROM t GROUP BY {expressions(n - 1)}", 1664, "54011", TARGETS),
    (lambda n: f"SELECT DISTINCT ON ({expressions(n - 1)}) b FROM t", 1664, "54011", TARGETS),
    (lambda n: f"SELECT b FROM t ORDER BY {expressions(n - 1)}", 1664, "54011", TARGETS),
    (lambda n: f"SELECT ROW({numbers(n)})", 1664, "54011", ROWS),
    (lambda n: f"SELECT ROW({numbers(n)}) = ROW({numbers(n)})", 1664, "54011", ROWS),
    (lambda n: f"CREATE TABLE w ({columns(n)})", 1600, "54011", COLUMNS),
    (lambda n: f"CREATE TABLE w AS SELECT {named(n)}", 1600, "54011", COLUMNS),
    (lambda n: f"CREATE VIEW w AS SELECT {named(n)}", 1600, "54011", COLUMNS),
    (lambda n: f"CREATE MATERIALIZED VIEW w AS SELECT {named(n)}", 1600, "54011", COLUMNS),
    (lambda n: f"CREATE TYPE w AS ({columns(n)})", 1600, "54011", COLUMNS),
    (lambda n: f"CREATE INDEX ON k ({names(n)})", 32, "54011", INDEX),
    (lambda n: f"CREATE TABLE w ({columns(33)}, PRIMARY KEY ({names(n)}))", 32, "54011", INDEX),
    (lambda n: f"CREATE TABLE w ({columns(33)}, UNIQUE ({names(n)}))", 32, "54011", INDEX),
    (
        lambda n: f"SELECT 1 FROM json_to_record('{{}}') AS x({columns(n)})",
        1600,
        "54011",
        "column definition lists can have at most 1600 entries",
    ),
    (
        lambda n: f"SELECT concat({numbers(n)})",
        100,
        "54023",
        "cannot pass more than 100 arguments to a function",
    ),
    (
        lambda n: f"CREATE FUNCTION f({columns(n)}) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        100,
        "54023",
        "functions cannot have more than 100 arguments",
    ),
]


@pytest.fixture(scope="module")
def catalog() -> TestCatalog:
    return TestCatalog("CREATE TABLE t (a int, b int)", f"CREATE TABLE k ({columns(33)})")


NOT_KEPT = ("INSERT", "CREATE TABLE w AS")  # statements that are not planned again


def refusal(catalog: TestCatalog, text: str, *, defined: bool = False) -> tuple[str, str] | None:
    """Return the SQLSTATE and the message with which planning a text fails."""
    try:
        for statement in parse(text):
            plan_statement(statement, catalog, defined=defined)
    except DatabaseError as error:
        return error.sqlstate, error.message
    return None


@pytest.mark.parametrize(("write", "most", "sqlstate", "message"), KINDS)
def test_one_beyond_the_bound_is_refused(
    catalog: TestCatalog, write: Callable[[int], str], most: int, sqlstate: str, message: str
) -> None:
    assert refusal(catalog, write(most + 1)) == (sqlstate, message)


@pytest.mark.parametrize(
    ("write", "most", "sqlstate", "message"),
    [each for each in KINDS if each[1] <= 100],
)
def test_the_bound_itself_is_accepted(
    catalog: TestCatalog, write: Callable[[int], str], most: int, sqlstate: str, message: str
) -> None:
    assert refusal(catalog, write(most)) is None


@pytest.mark.full
@pytest.mark.parametrize(
    ("write", "most", "sqlstate", "message"),
    [each for each in KINDS if each[1] > 100],
)
def test_a_wide_bound_itself_is_accepted(
    catalog: TestCatalog, write: Callable[[int], str], most: int, sqlstate: str, message: str
) -> None:
    assert refusal(catalog, write(most)) in (
        None,
        ("42601", "INSERT has more expressions than target columns"),
    )


def test_coalesce_is_no_function_and_takes_any_number(catalog: TestCatalog) -> None:
    assert refusal(catalog, f"SELECT coalesce({numbers(1_000)}), greatest({numbers(500)})") is None


def test_columns_that_a_query_sorts_by_twice_count_once(catalog: TestCatalog) -> None:
    same = ", ".join(["a"] * 2_000)
    assert refusal(catalog, f"SELECT a FROM t GROUP BY {same} ORDER BY {same}") is None


@pytest.mark.parametrize(
    ("write", "most", "sqlstate", "message"),
    [each for each in KINDS if not each[0](10).startswith(NOT_KEPT)],
)
def test_a_kept_definition_may_be_wider(
    catalog: TestCatalog, write: Callable[[int], str], most: int, sqlstate: str, message: str
) -> None:
    assert refusal(catalog, write(most + 1), defined=True) is None
