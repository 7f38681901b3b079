"""EXPLAIN as people read it: objects by their names, the index that answers, and what is looked up."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.harness import Server, until


@pytest.fixture(scope="module")
def explained(server: Server) -> Iterator[Server]:
    """The shared server, with a view that has an index."""
    with server.connect() as connection:
        connection.execute("CREATE SCHEMA explained")
        connection.execute("SET search_path = explained")
        connection.execute('CREATE TABLE "Orders" (id int, customer int)')
        connection.execute("CREATE TABLE customers (id int)")
        connection.execute(
            'CREATE VIEW counted AS SELECT customer, count(*) AS n FROM "Orders" GROUP BY customer'
        )
        connection.execute("CREATE INDEX by_customer ON counted (customer)")
        until(
            lambda: "by_customer" in explain(server, "EXPLAIN SELECT * FROM counted"),
            "the index is ready",
        )
        yield server
        connection.execute("DROP SCHEMA explained CASCADE")


def explain(server: Server, statement: str, *parameters: object) -> str:
    """Return what EXPLAIN says."""
    with server.connect(options="-c search_path=explained") as connection:
        rows = connection.execute(statement.encode(), parameters or None).fetchall()
        return "\n".join(line for (line,) in rows)


def test_a_plan_names_its_objects_in_full(explained: Server) -> None:
    assert explain(explained, 'EXPLAIN SELECT id FROM "Orders" WHERE id = customer') == (
        'Project (id)\n  Filter eq(id, customer)\n    Get foreshore.explained."Orders"'
    )
    assert explain(explained, "EXPLAIN SELECT relname FROM pg_class").endswith(
        "Get pg_catalog.pg_class"
    )
    for stage in ("RAW", "DECORRELATED"):
        said = explain(explained, f"EXPLAIN {stage} PLAN FOR SELECT id FROM customers")
        assert said.endswith("Get foreshore.explained.customers")


def test_a_look_up_says_index_place_and_values(explained: Server) -> None:
    used = """\
  foreshore.explained.by_customer on foreshore.explained.counted
    cluster quickstart, engine embedded
    look-up of (customer) = (5) or (6)"""
    query = "SELECT n FROM counted WHERE customer IN (5, 6)"
    plan = explain(explained, f"EXPLAIN {query}")
    assert plan.endswith(f"\n\nUsed index:\n{used}")
    assert "Get foreshore.explained.counted" in plan
    assert explain(explained, f"EXPLAIN PHYSICAL PLAN FOR {query}").startswith(
        f"Index\n{used}\nProject (n)\n"
    )
    whole = explain(explained, "EXPLAIN SELECT * FROM counted")
    assert whole.endswith("    read whole")


def test_values_to_look_up_may_be_arguments(explained: Server) -> None:
    said = explain(explained, "EXPLAIN SELECT n FROM counted WHERE customer = %s::int", 7)
    assert said.endswith("look-up of (customer) = (7::smallint)")


def test_the_plan_of_changes_names_what_it_reads(explained: Server) -> None:
    said = explain(
        explained,
        'EXPLAIN PHYSICAL PLAN FOR SELECT n.id FROM "Orders" o JOIN customers n ON o.customer = n.id',
    )
    assert said.startswith("Bulk query, cluster quickstart, engine embedded\n")
    changes = said.partition("\n\nIf maintained:\n")[2]
    assert changes.startswith("Engine: embedded\nOperator 0: Get foreshore.explained.")
    assert 'Get foreshore.explained."Orders"' in changes
    assert "Delta join of operators 1, 2 on=(" in changes
    assert "  Arrangement: rows of foreshore.explained." in changes


def test_what_a_recursion_finds_keeps_its_own_name(explained: Server) -> None:
    recursion = (
        "WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 3) "
        "SELECT * FROM r JOIN customers ON id = n"
    )
    for stage in ("", "PHYSICAL PLAN FOR "):
        said = explain(explained, f"EXPLAIN {stage}{recursion}")
        assert "Get foreshore.explained.customers" in said
        assert "Recursion r1" in said


def test_physical_plan_of_a_materialized_view(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE counted_in_view (i int, s text)")
        connection.execute("CREATE VIEW shown_counts AS SELECT s FROM counted_in_view")
        connection.execute(
            "CREATE MATERIALIZED VIEW kept_counts AS"
            " SELECT s, count(*) FROM counted_in_view WHERE i > 1 GROUP BY s"
        )
    shown = explain(server, "EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW public.kept_counts")
    assert shown.startswith("Materialized view, cluster ")
    assert "foreshore.public.counted_in_view" in shown
    assert "\n\nMaintained:\nEngine: " in shown
    query = explain(
        server,
        "EXPLAIN PHYSICAL PLAN FOR SELECT s, count(*) FROM public.counted_in_view WHERE i > 1 GROUP BY s",
    )
    assert shown.split("Maintained:\n")[1] == query.split("If maintained:\n")[1]
    with server.connect() as connection:
        connection.execute("CREATE INDEX kept_shown ON shown_counts (s)")
    index = explain(server, "EXPLAIN PHYSICAL PLAN FOR INDEX public.kept_shown")
    assert index.startswith("Index, cluster ")
    assert "\n\nMaintained:\nEngine: " in index
    for object, error in (
        ("public.shown_counts", psycopg.errors.WrongObjectType),
        ("no_counts", psycopg.errors.UndefinedTable),
    ):
        with pytest.raises(error):
            explain(server, f"EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW {object}")
