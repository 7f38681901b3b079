"""CREATE OR REPLACE VIEW of a view that other views use: they stay, over the new definition."""

from tests.adapter.harness import TestEnvironment

SETUP = (
    "CREATE TABLE t (a int NOT NULL, b text, c int)",
    "INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20)",
    "CREATE VIEW v AS SELECT a, b FROM t",
    "CREATE INDEX i ON v (a)",
    "CREATE VIEW w AS SELECT * FROM v",
    "CREATE VIEW top AS SELECT w.a AS k, v.* FROM w JOIN v USING (a)",
    "COMMENT ON COLUMN v.b IS 'a text'",
)
HINT = "HINT: Only views over views stay. Drop the others first, and create them again."


async def _rows(env: TestEnvironment, relation: str) -> list[str]:
    return sorted((await env.ran("r", f"SELECT * FROM {relation}")).splitlines()[:-1])


async def test_views_over_a_replaced_view_have_its_new_rows(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", *SETUP)
    oid = await env.query("a", "SELECT 'v'::regclass::oid")
    await env.ran("b", "PREPARE p AS SELECT * FROM top WHERE k = 2")
    assert await env.ran("b", "EXECUTE p") == "2|2|y\nSELECT 1"
    # `u` is newer than the views over `v`, and its columns may be NULL.
    await env.ran("a", "CREATE TABLE u (a int, b text)", "INSERT INTO u VALUES (2, 'new')")
    await env.ran(
        "a",
        "CREATE OR REPLACE VIEW v AS SELECT a, b, 1 AS more FROM u UNION ALL SELECT c, b, a FROM t",
    )
    expected = ["10|x", "20|y", "2|new"]
    for reopened in (False, True):
        if reopened:
            await env.reopen()
        assert await _rows(env, "v") == ["10|x|1", "20|y|2", "2|new|1"]
        assert await _rows(env, "w") == expected
        assert await _rows(env, "top") == ["10|10|x", "20|20|y", "2|2|new"]
        assert await env.query("a", "SELECT 'v'::regclass::oid") == oid
        assert (
            await env.query("a", "SELECT col_description('v'::regclass, 2)") == "a text\nSELECT 1"
        )
    await env.ran("a", "INSERT INTO u VALUES (NULL, 'null')")
    assert await _rows(env, "w") == ["10|x", "20|y", "2|new", "NULL|null"]
    assert await env.ran("a", "SELECT count(*) FROM w WHERE a IS NULL") == "1\nSELECT 1"
    await env.ran("a", "CREATE OR REPLACE VIEW v AS SELECT a, b, 2 AS more, 3 AS last FROM u")
    assert await _rows(env, "w") == ["2|new", "NULL|null"]
    shown = await env.query("a", "SHOW CREATE VIEW w")
    created = shown.split("|")[1].split("\n")[0].replace("public.w ", "public.again ")
    await env.ran("a", created)
    assert await _rows(env, "again") == ["2|new", "NULL|null"], created
    await env.ran("a", "DROP VIEW v CASCADE")


async def test_running_statements_and_blocks_see_one_definition(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", *SETUP, "PREPARE p AS SELECT * FROM w ORDER BY a")
    assert await env.ran("a", "EXECUTE p") == "1|x\n2|y\nSELECT 2"
    await env.ran("b", "BEGIN", "CREATE OR REPLACE VIEW v AS SELECT c AS a, b FROM t")
    assert (await env.query("b", "SELECT a FROM top WHERE k = 20")).startswith("20\n")
    assert await env.ran("a", "EXECUTE p") == "1|x\n2|y\nSELECT 2"
    await env.ran("b", "ROLLBACK")
    assert await env.ran("a", "EXECUTE p") == "1|x\n2|y\nSELECT 2"
    await env.ran("b", "CREATE OR REPLACE VIEW v AS SELECT c AS a, b FROM t")
    assert await env.ran("a", "EXECUTE p") == "10|x\n20|y\nSELECT 2"


async def test_what_postgresql_refuses_and_what_is_maintained_is_refused(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran("a", *SETUP)
    replace = "CREATE OR REPLACE VIEW v AS SELECT"
    for rest, error in (
        ("a FROM t", "ERROR 42P16: cannot drop columns from view"),
        (
            "a, b AS other FROM t",
            'ERROR 42P16: cannot change name of view column "b" to "other"\nHINT: Use ALTER VIEW'
            " ... RENAME COLUMN ... to change name of view column instead.",
        ),
        (
            "a::bigint AS a, b FROM t",
            'ERROR 42P16: cannot change data type of view column "a" from integer to bigint',
        ),
        ("a, b FROM w", 'ERROR 42P17: infinite recursion detected in view "v"'),
    ):
        assert await env.query("a", f"{replace} {rest}") == error, rest
    maintained = (
        ("CREATE INDEX j ON w (b)", "index j", "view w", "INDEX j"),
        ("CREATE MATERIALIZED VIEW m AS SELECT b FROM w", "materialized view m", "view w", None),
        ("CREATE MATERIALIZED VIEW m AS SELECT b FROM v", "materialized view m", "view v", None),
    )
    for create, above, below, drop in maintained:
        await env.ran("a", create)
        assert await env.query("a", f"{replace} c AS a, b FROM t") == (
            "ERROR 2BP01: cannot replace view v because other objects depend on it\n"
            f"DETAIL: {above} depends on {below}\n{HINT}"
        )
        await env.ran("a", f"DROP {drop or 'MATERIALIZED VIEW m'}")
    await env.ran("a", f"{replace} c AS a, b FROM t")
    assert await _rows(env, "w") == ["10|x", "20|y"]
    await env.ran(
        "a",
        "CREATE MATERIALIZED VIEW n AS SELECT a FROM v",
        "CREATE VIEW over AS SELECT a FROM n",
    )
    refused = await env.query("a", "CREATE OR REPLACE MATERIALIZED VIEW n AS SELECT a FROM t")
    assert refused.startswith("ERROR 2BP01: cannot replace materialized view n"), refused


async def test_replaced_view_tells_its_indexes_and_subscribers(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", *SETUP[:3], "CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
    await env.ran("a", "CREATE INDEX m_a ON m (a)", "CREATE INDEX m_b ON m ((a + 1))")
    await env.ran("a", "CREATE INDEX v_a ON v (a)")
    await env.ran("s", "BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE m", "FETCH 2 c")
    replaced = await env.query("a", "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT c FROM t")
    assert replaced.splitlines() == [
        "CREATE MATERIALIZED VIEW",
        "NOTICE: drop cascades to index m_a",
        "NOTICE: drop cascades to index m_b",
    ]
    ended = await env.query("s", "FETCH ALL c WITH (TIMEOUT = '60s')")
    assert 'ERROR 55000: the subscription has ended because "m" was replaced' in ended
    await env.query("s", "ROLLBACK")
    # Also of a view below another one, which stays the same object.
    await env.ran("a", "CREATE VIEW w AS SELECT * FROM v")
    replaced = await env.query("a", "CREATE OR REPLACE VIEW v AS SELECT a, b FROM t WHERE a > 1")
    assert "NOTICE: drop cascades to index v_a" in replaced
    assert await env.ran("a", "SELECT name FROM mz_indexes WHERE id LIKE 'u%'") == "SELECT 0"
