"""pg_dump keeps all that a definition says: SHOW CREATE is the same of an object and of the restored one.

`DEFINITIONS` uses each option of the pages of docs/reference about what pg_dump carries. A new option has
its line on a page (tests/docs), and `test_each_option_of_the_reference_is_dumped` asks for it here.
"""

import re
import sys
from collections.abc import Iterator

import psycopg
import pytest

from foreshore.catalog.item import Item
from tests.docs.pages import REFERENCE
from tests.e2e.test_pg_dump import run, url_of
from tests.harness import Server, program, until

DEFINITIONS = (
    "CREATE TYPE mood AS ENUM ('low', 'high')",
    "CREATE TYPE place AS (street text, city text)",
    "CREATE DOMAIN amount AS int DEFAULT 1 CONSTRAINT positive CHECK (VALUE > 0)",
    "CREATE FUNCTION is_good(x int) RETURNS boolean LANGUAGE sql IMMUTABLE STRICT RETURN x > 0",
    "CREATE FUNCTION two(OUT c int, INOUT a int, b int) LANGUAGE sql STABLE AS 'SELECT a * b, a + b'",
    "CREATE FUNCTION every(n int) RETURNS SETOF int LANGUAGE sql VOLATILE RETURN n",
    "CREATE FUNCTION pairs(n int) RETURNS TABLE (i int, j int) LANGUAGE sql BEGIN ATOMIC SELECT n, n; END",
    "CREATE FUNCTION one_of(VARIADIC y int[], OUT x int) LANGUAGE sql AS 'SELECT y[1]'",
    "CREATE FUNCTION width(y int[]) RETURNS int LANGUAGE sql RETURN (SELECT max(v) FROM unnest(y) v)",
    "CREATE AGGREGATE widest(int) (SFUNC = array_append, STYPE = int[], FINALFUNC = width)",
    "CREATE SEQUENCE steps AS int INCREMENT BY 3 MINVALUE 2 MAXVALUE 50 START WITH 5 CACHE 4 CYCLE",
    "CREATE TABLE customers (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, region text DEFAULT 'EU'::text, "
    "code text UNIQUE NULLS NOT DISTINCT, email text UNIQUE)",
    "CREATE TABLE orders (id serial PRIMARY KEY, customer int DEFAULT 1, other int, price numeric(8, 2), "
    "gross numeric(9, 2) GENERATED ALWAYS AS (price * 1.19) STORED, felt mood, size amount, "
    "CONSTRAINT positive CHECK (price > 0), "
    "CONSTRAINT by_customer FOREIGN KEY (customer) REFERENCES customers MATCH FULL "
    "ON DELETE SET NULL (customer) ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED) "
    "WITH (RETAIN HISTORY FOR '3 days')",
    "ALTER TABLE orders ADD CONSTRAINT later FOREIGN KEY (other) REFERENCES customers NOT VALID",
    "CREATE SEQUENCE owned OWNED BY orders.id",
    "CREATE TABLE log (at timestamp, line text) WITH (APPEND ONLY)",
    "CREATE TABLE stream (at timestamp, WATERMARK FOR at AS at - INTERVAL '5 s' IDLE TIMEOUT INTERVAL '1 day')",
    "CREATE VIEW invoked WITH (security_invoker) AS SELECT id FROM orders",
    "CREATE VIEW expected (CONSTRAINT good EXPECT (is_good(id)) ON VIOLATION DROP ROW, "
    """CONSTRAINT "It's" EXPECT (note <> 'it''s') ON VIOLATION FAIL, """
    "CONSTRAINT weak EXPECT (id < 9) ON VIOLATION WARN) AS SELECT id, 'a' AS note FROM orders",
    "CREATE MATERIALIZED VIEW kept IN CLUSTER \"Dump's\" WITH (RETAIN HISTORY FOR '2 days', MEMORY LIMIT = "
    "'100 MB', HYDRATE = 'local', ASSERT NOT NULL = id, ASSERT NOT NULL = \"Price\", ON ERROR = SKIP) "
    'AS SELECT id, price AS "Price" FROM orders',
    "CREATE MATERIALIZED VIEW counted (CONSTRAINT good EXPECT (is_good(id)) ON VIOLATION DROP ROW) "
    "WITH (ASSERT NOT NULL = id) AS SELECT id FROM orders",
    "CREATE MATERIALIZED VIEW at_once WITH (REFRESH ON COMMIT) AS SELECT id FROM orders",
    "CREATE MATERIALIZED VIEW nightly WITH (REFRESH EVERY '1 day' ALIGNED TO '2026-01-01 03:00+00', "
    "REFRESH AT '2030-01-01 00:00+00', REFRESH AT '2031-01-01 00:00+00', REFRESH POLICY = FULL) "
    "AS SELECT id FROM orders",
    "CREATE MATERIALIZED VIEW first_rows WITH (REFRESH AT CREATION) AS SELECT id FROM orders",
    "CREATE MATERIALIZED VIEW inner_lag WITH (TARGET LAG = DOWNSTREAM) AS SELECT id FROM orders",
    "CREATE MATERIALIZED VIEW lag WITH (FRESHNESS = '5 s', REFRESH POLICY = INCREMENTAL) "
    "AS SELECT count(*) AS n FROM inner_lag",
    "CREATE MATERIALIZED VIEW closed WITH (EMIT ON WINDOW CLOSE, RETAIN HISTORY FOR '1 h') AS SELECT "
    "window_end, count(*) AS n FROM TUMBLE(stream, at, INTERVAL '1 hour') GROUP BY window_end",
    'CREATE ASSERTION covered IN CLUSTER "Dump\'s" CHECK (NOT EXISTS (SELECT id FROM orders WHERE price < 0))',
    'CREATE INDEX by_price IN CLUSTER "Dump\'s" ON expected (note, (id + 1)) WITH (RETAIN HISTORY FOR '
    "'1 h', MEMORY LIMIT = '1 GB', HYDRATE = 'local')",
    "CREATE DEFAULT INDEX whole ON invoked",
    "CREATE INDEX ordered ON orders (price DESC NULLS LAST, customer)",
    "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE orders FORCE ROW LEVEL SECURITY",
    "CREATE POLICY cheap ON orders AS PERMISSIVE FOR ALL TO PUBLIC USING (price < 10) WITH CHECK (price < 9)",
    "CREATE POLICY never ON orders AS RESTRICTIVE FOR DELETE USING (false)",
    "COMMENT ON MATERIALIZED VIEW kept IS 'it is kept'",
    "COMMENT ON COLUMN orders.price IS 'in euros'",
    "COMMENT ON CONSTRAINT positive ON orders IS 'not for free'",
    "GRANT SELECT ON kept TO PUBLIC",
    "GRANT UPDATE (price) ON orders TO PUBLIC",
)
PAGES = (
    "create-table", "create-view", "create-materialized-view", "create-assertion", "create-index",
    "create-sequence", "create-function", "create-aggregate", "create-domain", "create-type",
    "create-policy",
)  # fmt: skip
# What the pages name beside options that an object keeps.
NOT_KEPT = {
    "TEMPORARY", "TEMP", "UNLOGGED", "IF NOT EXISTS", "OR REPLACE", "ON COMMIT", "CONCURRENTLY", "USING", "ASC",
    "INCLUDE", "FAMILY", "fillfactor", "PARTITION BY", "WITH NO DATA", "AS OF time", "AS OF AT LEAST time", "RESTART",
    "BEFORE", "AFTER", "type", "relation", "key", "query", "expectation", "'label'", "attribute type",
    "emit_on_window_close", "on_error", "ELEMENT TYPE", "VALUE TYPE", "(column, ...)", "INDEX name (key, ...)",
}  # fmt: skip
AS_DUMPED = {
    "retain_history", "append_only", "memory_limit", "hydrate", "refresh", "assert_not_null", "target_lag",
    "refresh_policy", "expect", "emit_on_window_close", "on_error", "cluster", "assertion",
}  # fmt: skip
# Fields of an item that are no part of its definition, or stand for what restores it another way.
DERIVED = {
    "id", "oid", "schema", "name", "owner", "depends_on", "on", "bound", "known", "known_keys",
    "stored_names", "part_of", "since", "constrained_since", "keeps_digits", "generation", "on_commit",
    "error_policy_changes",
    "enum_values", "arguments", "handler",
    # pg_dump has no statement for these: `foreshore dump` has.
    "feed", "sink", "metric",
}  # fmt: skip
SHOWN = {
    "type", "create_sql", "cluster", "retain_ms", "memory_limit", "hydrate", "refresh", "foreign_keys",
    "constraints", "security_invoker",
}  # fmt: skip
ASKED = {
    "comment": "SELECT relname, obj_description(oid) FROM pg_class WHERE relnamespace = 'public'::regnamespace "
    "ORDER BY relname",
    "column_comments": "SELECT col_description('orders'::regclass, 4)",
    "constraint_comments": "SELECT conname, obj_description(oid, 'pg_constraint') FROM pg_constraint "
    "WHERE connamespace = 'public'::regnamespace ORDER BY conname, conrelid::regclass::text",
    "grants": "SELECT relname, relacl FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY relname",
    "column_grants": "SELECT attname, attacl FROM pg_attribute WHERE attrelid = 'orders'::regclass ORDER BY attnum",
    "row_security": "SELECT relname, relrowsecurity FROM pg_class ORDER BY relname",
    "force_row_security": "SELECT relname, relforcerowsecurity FROM pg_class ORDER BY relname",
    "policy": "SELECT * FROM pg_policies ORDER BY policyname, tablename",
    "owned_by": "SELECT pg_get_serial_sequence('orders', 'id'), pg_get_serial_sequence('customers', 'id')",
    "functions": "SELECT proname, pg_get_functiondef(oid) FROM pg_proc "
    "WHERE pronamespace = 'public'::regnamespace AND prokind = 'f' ORDER BY proname",
    "aggregates": "SELECT proname, proargtypes FROM pg_proc "
    "WHERE pronamespace = 'public'::regnamespace AND prokind = 'a' ORDER BY proname",
    "sequences": "SELECT * FROM pg_sequences ORDER BY sequencename",
}
# What pg_dump cannot carry.
OTHERS = (
    'CREATE SCHEMA "Other"',
    "CREATE TYPE prices AS MAP (KEY TYPE = text, VALUE TYPE = int)",
    "CREATE TYPE words AS LIST (ELEMENT TYPE = text)",
    'CREATE TABLE "Other".listed (id int, w words, p prices)',
    "CREATE SECRET pw AS 'x'",
    "CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT 1, DATABASE 'd', USER 'u', PASSWORD SECRET pw)",
    "CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (TICK INTERVAL '1 h') FOR ALL TABLES",
    "ALTER SOURCE bids SET (RETAIN HISTORY FOR '2 days')",
    "CREATE SOURCE hooks FROM WEBHOOK BODY FORMAT JSON",
    "ALTER SOURCE hooks SET (RETAIN HISTORY FOR '1 hour')",
    "CREATE MATERIALIZED VIEW per AS SELECT auction_id, count(*) AS n FROM bids GROUP BY auction_id",
    "CREATE METRIC of_bids FROM per VALUE n LABELS (auction_id)",
    "CREATE SINK sent FROM per INTO WEBHOOK (URL 'http://127.0.0.1:9/x', PRIVATE = true)",
    "CREATE SUBSCRIPTION of_orders FOR orders",
    "ALTER TABLE customers ADD COLUMN best int",
    "ALTER TABLE customers ADD CONSTRAINT best_order FOREIGN KEY (best) REFERENCES orders",
    "COMMENT ON SINK sent IS 'sent'",
    "COMMENT ON CONNECTION pg IS 'to pg'",
    "COMMENT ON POLICY never ON orders IS 'never'",
    "COMMENT ON FUNCTION is_good IS 'good'",
    "CREATE FUNCTION of_two(x int) RETURNS int LANGUAGE sql RETURN 1",
    "CREATE FUNCTION of_two(x text[]) RETURNS int LANGUAGE sql RETURN 2",
    "COMMENT ON FUNCTION of_two(text[]) IS 'of texts'",
    "COMMENT ON SCHEMA \"Other\" IS 'others'",
)
OBJECTS = """
    SELECT o.name, o.type FROM mz_objects o JOIN mz_schemas s ON s.id = o.schema_id
    JOIN mz_databases d ON d.id = s.database_id
    WHERE d.name = current_database() AND o.type NOT IN ('function', 'policy') ORDER BY o.name, o.type
"""


def options_of(page: str) -> Iterator[str]:
    """Yield what the tables of a page name in their first column."""
    parameters, _, _ = (REFERENCE / f"{page}.md").read_text().partition("## Notes")
    for line in parameters.splitlines():
        if line.startswith("| `"):
            yield from re.findall(r"`([^`]+)`", line.split("|")[1])


@pytest.mark.parametrize("page", PAGES)
def test_each_option_of_the_reference_is_dumped(page: str) -> None:
    texts = " ".join(DEFINITIONS)
    named = {each.partition(" = ")[0] for each in options_of(page)}
    for option in named - NOT_KEPT - AS_DUMPED:
        words = option.removesuffix(" expression").removesuffix(" (column, ...)").split(" ... ")
        assert re.search(r"\b.*\b".join(words), texts, re.IGNORECASE), option


def test_each_field_of_an_item_is_compared() -> None:
    assert set(Item.__struct_fields__) - DERIVED - SHOWN == set(ASKED) - {
        "functions", "aggregates", "sequences",
    }  # fmt: skip


def definitions(server: Server, database: str) -> dict[str, str]:
    """Return SHOW CREATE of each object, without the database's name, and what else is compared."""
    found = {}
    with psycopg.connect(url_of(server, database), autocommit=True) as connection:
        for name, type in connection.execute(OBJECTS).fetchall():
            kind = type.replace("-", " ")
            shown = f'SHOW CREATE {kind} "{name}"'.encode()
            row = connection.execute(shown).fetchone()
            assert row is not None, name
            found[f"{kind} {name}"] = row[1].replace(f"{database}.public.", "public.")
        for field, query in ASKED.items():
            found[field] = str(connection.execute(query.encode()).fetchall())
    return found


@pytest.mark.full
def test_restored_definitions_are_the_same(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE DATABASE defined")
        connection.execute("CREATE DATABASE redefined")
        connection.execute("CREATE CLUSTER \"Dump's\" (SIZE = 'embedded')")
    with psycopg.connect(url_of(server, "defined"), autocommit=True) as connection:
        for each in DEFINITIONS:
            connection.execute(each.encode())
    dump = run(program("pg_dump"), url_of(server, "defined"))
    options = ("-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null")
    run(program("psql"), url_of(server, "redefined"), *options, given=dump)
    before, after = definitions(server, "defined"), definitions(server, "redefined")
    assert len(before) > 30
    different = {
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }
    found = "\n\n".join(f"{n}:\n{before.get(n)}\n{after.get(n)}" for n in sorted(different))
    assert not different, found


@pytest.mark.full
def test_foreshore_dump_makes_all_objects_again(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE DATABASE whole")
        connection.execute("CREATE DATABASE again")
        connection.execute("CREATE CLUSTER IF NOT EXISTS \"Dump's\" (SIZE = 'embedded')")
    with psycopg.connect(url_of(server, "whole"), autocommit=True) as connection:
        for each in DEFINITIONS + OTHERS:
            connection.execute(each.encode())
        connection.execute("CREATE ROLE of_dump LOGIN PASSWORD 'of a dump'")
        connection.execute("GRANT SELECT ON orders TO of_dump")
        main = (sys.executable, "-m", "foreshore.server.main", "dump")
        of_system = ("cluster", "role", "network-policy", "system")
        command = (*main, *(each for kind in of_system for each in ("--without", kind)))
        dump = run(*command, url_of(server, "whole"))
        connection.execute("DROP METRIC of_bids")  # whose name is one in all databases
    options = ("-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null")
    run(program("psql"), url_of(server, "again"), *options, given=dump)
    again = run(*command, url_of(server, "again"))
    before, after = (sorted(each.split(";\n")[1:]) for each in (dump, again))
    assert before == after
    kept = [
        each.split(" SET ")[1]
        for each in before
        if each.startswith("ALTER SOURCE public.") and " SET (" in each
    ]
    assert kept == ["(RETAIN HISTORY FOR '48:00:00')", "(RETAIN HISTORY FOR '01:00:00')"]
    assert len(before) > len(DEFINITIONS)
    assert "GRANT SELECT ON TABLE public.orders TO of_dump" in dump
    assert "ALTER TABLE public.orders OWNER TO foreshore" in dump
    assert "of_dump LOGIN" not in dump
    bare = run(*command, "--no-owner", "--no-privileges", url_of(server, "again"))
    assert set(before) - set(bare.split(";\n")) == {
        each for each in before if each.startswith("GRANT ") or " OWNER TO " in each
    }
    with_passwords = run(*main, "--role-passwords", url_of(server, "again"))
    assert "ALTER ROLE of_dump PASSWORD 'SCRAM-SHA-256$" in with_passwords
    assert dump.count("COMMENT ON ") == sum("COMMENT ON " in each for each in DEFINITIONS + OTHERS)


@pytest.mark.full
def test_sources_are_restored_as_tables_with_their_rows(server: Server) -> None:
    source = (
        "CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (TICK INTERVAL '1 h') FOR ALL TABLES"
    )
    with server.connect() as connection:
        connection.execute("CREATE DATABASE sourced")
        connection.execute("CREATE DATABASE from_sources")
    rows = "SELECT count(*), min(name) FROM organizations"
    with psycopg.connect(url_of(server, "sourced"), autocommit=True) as connection:
        connection.execute(source.encode())
        connection.execute("CREATE MATERIALIZED VIEW named AS SELECT name FROM organizations")
        arrived = "SELECT count(*) > 0 FROM organizations"
        until(lambda: connection.execute(arrived.encode()).fetchone() == (True,), "rows arrive")
        before = connection.execute(rows.encode()).fetchone()
    dump = run(program("pg_dump"), url_of(server, "sourced"))
    options = ("-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null")
    run(program("psql"), url_of(server, "from_sources"), *options, given=dump)
    with psycopg.connect(url_of(server, "from_sources"), autocommit=True) as connection:
        assert connection.execute(rows.encode()).fetchone() == before
        assert connection.execute("SELECT * FROM named").fetchall()
