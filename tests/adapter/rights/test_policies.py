"""Row-level security: what PostgreSQL answers to several roles, and what only Foreshore has."""

from itertools import product
from pathlib import Path

from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.sql import plan as plans
from tests.adapter.harness import TestEnvironment, in_environment, told
from tests.adapter.rights.script import POLICIES, ran, steps


def test_policies_show_and_refuse_what_postgresql_does(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        differing = [
            f"{role}: {sql}\n  -> {answer}\n  PG {expected}"
            for role, sql, expected in steps(POLICIES)
            if (answer := await ran(env, role, sql, rows=True)) != expected
        ]
        assert not differing, "\n".join(differing)

    in_environment(tmp_path, scenario)


async def _tenants(env: TestEnvironment) -> None:
    await env.ran(
        "admin",
        "CREATE ROLE ann",
        "CREATE ROLE bob",
        "CREATE TABLE t (id int PRIMARY KEY, owner text, n int)",
        "INSERT INTO t VALUES (1, 'ann', 1), (2, 'bob', 0), (3, 'ann', 3)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON t TO PUBLIC",
        "GRANT USAGE, CREATE ON SCHEMA public TO PUBLIC",
        "GRANT USAGE, CREATE ON CLUSTER quickstart TO PUBLIC",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    )
    await _become(env)


async def _become(env: TestEnvironment) -> None:
    for role in ("ann", "bob"):
        await env.session(role)
        await env.ran(role, f"SET SESSION AUTHORIZATION {role}")


def test_shared_plans_are_those_of_the_role_and_its_settings(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tenants(env)
        await env.ran("admin", "CREATE POLICY own ON t USING (owner = current_user)")
        queries = {
            "SELECT count(*) FROM t": ("2", "1", "3"),
            "SELECT n FROM t WHERE id = 2": ("", "0", "0"),
            "SELECT id FROM t WHERE owner <> 'x' ORDER BY id": ("1\n3", "2", "1\n2\n3"),
        }
        for _ in range(2):
            for sql, answers in queries.items():
                for role, rows in zip(("ann", "bob", "admin"), answers, strict=True):
                    answer = await env.query(role, sql)
                    assert answer.rpartition("\n")[0] == rows, (role, sql, answer)
        await env.ran("admin", "ALTER POLICY own ON t USING (owner = current_setting('app.who'))")
        for role, who in (("ann", "ann"), ("bob", "bob"), ("ann", "bob")):
            await env.ran(role, f"SET app.who = '{who}'")
            rows = queries["SELECT count(*) FROM t"][who == "bob"]
            assert await env.query(role, "SELECT count(*) FROM t") == f"{rows}\nSELECT 1"
        await env.ran("bob", "SET row_security = off")
        refused = "ERROR 42501: query would be affected by row-level security policy"
        assert (await env.query("bob", "SELECT count(*) FROM t")).startswith(refused)
        assert await env.query("ann", "SELECT count(*) FROM t") == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_named_statement_follows_policies(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tenants(env)
        await env.ran("admin", "CREATE POLICY own ON t TO ann USING (owner = 'ann')")
        session = await env.session("ann")
        await env.ran("ann", "SET SESSION AUTHORIZATION ann")
        sql = "SELECT n FROM t WHERE id = 1"
        assert await env.query("ann", sql) == "1\nSELECT 1"
        plan = await env.query("ann", f"EXPLAIN PHYSICAL PLAN FOR {sql}")
        assert "look-up of (id) = (1)" in plan, plan
        prepared = await session.extended.parse("named", sql, ())
        await session.extended.sync()
        for policy, rows in (("owner = 'ann'", 1), ("false", 0)):
            await env.ran("admin", f"ALTER POLICY own ON t USING ({policy})")
            await session.extended.ready(prepared)
            ran = await session.extended.run(prepared, [()], (), 0, last=True)
            assert [await told(each) for each in ran] == [["1"] * rows + [f"SELECT {rows}"]]
            await session.extended.sync()
        assert await env.query("ann", sql) == "SELECT 0"
        await env.ran("admin", "ALTER ROLE ann BYPASSRLS")
        assert await env.query("ann", sql) == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_maintained_views_are_their_owners_and_never_stale(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tenants(env)
        await env.ran(
            "admin",
            "CREATE TABLE acl (tid int)",
            "INSERT INTO acl VALUES (1), (2), (9)",
            "GRANT SELECT ON acl TO ann",
            "CREATE POLICY p ON t USING (n > 0 AND id IN (SELECT tid FROM acl))",
        )
        await env.ran("ann", "CREATE VIEW of_ann AS SELECT * FROM t")
        # The hidden row would divide by zero.
        await env.ran("ann", "CREATE MATERIALIZED VIEW m AS SELECT id, 10 / n AS q FROM of_ann")
        await env.ran("admin", "CREATE MATERIALIZED VIEW whole AS SELECT id FROM t")
        rows = "SELECT * FROM m ORDER BY id"
        assert await env.query("ann", rows) == "1|10\nSELECT 1"
        await env.ran("admin", "INSERT INTO t VALUES (9, 'x', 5), (10, 'x', 5)")
        assert await env.query("ann", rows) == "1|10\n9|2\nSELECT 2"
        assert await env.query("admin", "SELECT count(*) FROM whole") == "5\nSELECT 1"
        refused = "ERROR 55006: row-level security of materialized view m cannot be changed"
        for sql in (
            "ALTER POLICY p ON t USING (true)",
            "DROP POLICY p ON t",
            "CREATE POLICY more ON t USING (true)",
            "CREATE POLICY more ON t AS RESTRICTIVE TO ann USING (true)",
            "ALTER POLICY p ON t TO bob",
            "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
            "ALTER ROLE ann BYPASSRLS",
            "ALTER ROLE ann SUPERUSER",
            "ALTER VIEW of_ann OWNER TO foreshore",
            "ALTER TABLE t OWNER TO ann",
            "GRANT foreshore TO ann",
            "ALTER TABLE acl ENABLE ROW LEVEL SECURITY",
        ):
            answer = await env.query("admin", sql)
            assert answer.startswith(refused), (sql, answer)
        for sql in (
            "ALTER MATERIALIZED VIEW m OWNER TO bob",  # it reads a view of ann
            "ALTER MATERIALIZED VIEW m OWNER TO ann",
            "CREATE POLICY others ON t TO bob USING (true)",
            "CREATE POLICY inserted ON t FOR INSERT WITH CHECK (true)",
            "DROP POLICY others ON t",
            "ALTER TABLE acl ADD COLUMN more int",
            "ALTER TABLE t ADD COLUMN more int",
            "ALTER TABLE t RENAME COLUMN n TO amount",
            "ALTER TABLE acl RENAME TO allowed",
        ):
            await env.ran("admin", sql)
        await env.ran("admin", "INSERT INTO allowed VALUES (3)")
        assert await env.query("ann", rows) == "1|10\n3|3\n9|2\nSELECT 3"
        await env.reopen()
        await _become(env)
        assert await env.query("ann", rows) == "1|10\n3|3\n9|2\nSELECT 3"
        assert await env.query("ann", "SELECT id FROM t ORDER BY id") == "1\n3\n9\nSELECT 3"
        await env.ran("admin", "DROP MATERIALIZED VIEW m", "ALTER POLICY p ON t USING (true)")
        assert await env.query("ann", "SELECT count(*) FROM of_ann") == "5\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_maintained_views_refuse_values_of_sessions_and_indexes_hidden_rows(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tenants(env)
        await env.ran("admin", "CREATE POLICY own ON t USING (owner = current_user)")
        view = "CREATE MATERIALIZED VIEW m AS SELECT * FROM t"
        answer = await env.query("ann", view)
        assert answer.startswith("ERROR 0A000: current_user cannot be used in a view that is")
        assert 'DETAIL: Policy "own" needs it.' in answer, answer
        await env.ran("ann", "CREATE VIEW v AS SELECT * FROM t")
        await env.ran("admin", "ALTER POLICY own ON t USING (n > 0)")
        answer = await env.query("ann", "CREATE INDEX ON v (id)")
        assert answer.startswith('ERROR 0A000: index "v_id_idx" on view "v" cannot be'), answer
        await env.ran("admin", "ALTER TABLE t DISABLE ROW LEVEL SECURITY")
        await env.ran("ann", "CREATE INDEX ON v (id)")
        answer = await env.query("admin", "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        assert answer.startswith("ERROR 55006: row-level security of index v_id_idx"), answer
        await env.ran("ann", "GRANT SELECT ON v TO bob")
        assert await env.query("bob", "SELECT count(*) FROM v WHERE id > 0") == "3\nSELECT 1"
        await env.ran("admin", f"CREATE OR REPLACE {view.removeprefix('CREATE ')}")

    in_environment(tmp_path, scenario)


def test_subscribe_shows_rows_by_the_policies_and_settings_of_its_beginning(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tenants(env)
        await env.ran(
            "admin",
            "CREATE POLICY own ON t"
            " USING (owner = current_user OR owner = current_setting('app.who', true))",
            "UPDATE t SET n = 2 WHERE id = 2",
        )
        declare = "DECLARE c CURSOR FOR SUBSCRIBE (SELECT id, 12 / n AS q FROM t WHERE id < 9)"
        for role in ("ann", "bob"):
            await env.ran(role, "SET app.who = 'carl'", "BEGIN", declare)
        await env.ran("admin", "INSERT INTO t VALUES (4, 'ann', 4), (5, 'carl', 6), (6, 'x', 0)")
        for role, expected in (("ann", "1|12 3|4 4|3 5|2"), ("bob", "2|6 5|2")):
            seen: list[str] = []
            while len(seen) < len(expected.split()):
                answer = await env.ran(role, "FETCH 1 c WITH (timeout = '5s')")
                seen += [each.split("|", 2)[2] for each in answer.split("\n") if "|" in each]
            assert sorted(seen) == expected.split(), role
        for sql, ends in (
            ("CREATE POLICY others ON t TO bob USING (true)", "bob"),
            ("ALTER POLICY others ON t RENAME TO another", ""),
            ("CREATE POLICY less ON t AS RESTRICTIVE TO ann USING (id > 1)", "ann"),
        ):
            await env.ran("admin", sql)
            for role in ("ann", "bob"):
                answer = await env.query(role, "FETCH 1 c WITH (timeout = '0s')")
                assert answer.startswith("ERROR 55000: row-level security") == (role == ends)
                if role == ends:
                    await env.query(role, "ROLLBACK")
                    await env.ran(role, "BEGIN", declare)

    in_environment(tmp_path, scenario)


def test_executions_in_a_row_are_checked_each(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tenants(env)
        await env.ran("admin", "CREATE POLICY own ON t USING (owner = current_user)")
        insert = "INSERT INTO t VALUES ($1, $2, 1)"
        for place, sql in enumerate((insert, "UPDATE t SET owner = $2 WHERE id = $1")):
            for role, together in (("ann", False), ("admin", True)):
                session = env.sessions[role]
                prepared = await session.extended.parse(f"p{place}", sql, ())
                await session.extended.sync()
                assert session.extended.takes_many(prepared) == together, (role, sql)

    in_environment(tmp_path, scenario)


def test_policies_go_with_their_tables_and_need_what_they_use(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "admin",
            "CREATE SCHEMA s",
            "CREATE TABLE s.a (id int)",
            "CREATE TABLE b (id int)",
            "CREATE POLICY p ON b USING (id IN (SELECT id FROM s.a))",
            "CREATE POLICY a ON s.a USING (true)",
        )
        answer = await env.query("admin", "DROP SCHEMA s")
        assert "policy p on table b depends on table s.a" in answer, answer
        assert "policy a" not in answer, answer
        await env.ran("admin", "DROP SCHEMA s CASCADE")
        assert await env.query("admin", "SELECT policyname FROM pg_policies") == "SELECT 0"
        await env.ran(
            "admin",
            "CREATE TEMP TABLE c (id int)",
            "INSERT INTO c VALUES (1), (2)",
            "CREATE POLICY p ON c USING (id = 1)",
            "ALTER TABLE c ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
            "CREATE ROLE ann",
            "GRANT SELECT ON c TO ann",
            "SET ROLE ann",
        )
        assert await env.query("admin", "SELECT * FROM c") == "1\nSELECT 1"
        await env.ran("admin", "RESET ROLE", "DISCARD TEMP")

    in_environment(tmp_path, scenario)


def test_functions_with_effects_do_not_see_hidden_rows(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tenants(env)
        await env.ran("admin", "CREATE POLICY own ON t USING (owner = current_user)")
        for condition in (
            "pg_notify('c', n::text) IS NOT NULL",
            "set_config('a.b', owner, false) = ''",
        ):
            await env.query("ann", f"SELECT id FROM t WHERE {condition}")
            await env.query("ann", f"SELECT {condition} FROM t")
            await env.query("ann", f"SELECT {condition} FROM t WHERE id = 2")
            shown = await env.query("ann", "SELECT current_setting('a.b', true)")
            assert "bob" not in shown, (condition, shown)
        answer = await env.query("ann", "SELECT * FROM CHANGES(t, 0)")
        assert "CHANGES of table" in answer, answer
        await env.ran("admin", "CREATE POLICY low ON t AS RESTRICTIVE USING (n < 2)")
        await env.ran("admin", "ALTER POLICY own ON t USING (n < 2)")
        await env.ran("admin", "CREATE VIEW v WITH (security_invoker = true) AS TABLE t")
        await env.ran("admin", "GRANT SELECT ON v TO ann")
        for what, name in product(("COST", "FILTER PUSHDOWN"), "tv"):
            answer = await env.query("ann", f"EXPLAIN {what} FOR SELECT DISTINCT n FROM {name}")
            assert answer.startswith("ERROR 0A000"), answer
            assert "records" not in answer
        assert "records" in await env.query("admin", "EXPLAIN COST FOR SELECT DISTINCT n FROM t")
        await env.ran("admin", "DROP POLICY low ON t")
        await env.ran("admin", "ALTER POLICY own ON t USING (owner = current_user)")
        cast = "SELECT id FROM t WHERE (CASE WHEN n = 0 THEN owner ELSE '1' END)::int > 0"
        assert await env.query("ann", cast + " ORDER BY 1") == "1\n3\nSELECT 2"

    in_environment(tmp_path, scenario)


HIDDEN = "4471kingfisher"
STATEMENTS = {
    plans.Select: "SELECT * FROM t WHERE a::int > 0 OR a = 'x'",
    plans.CopyTo: "COPY t TO STDOUT",
    plans.CopyChange: "COPY (UPDATE t SET n = n RETURNING *) TO STDOUT",
    plans.Explain: "EXPLAIN SELECT a::int FROM t WHERE id = 1",
    plans.ExplainAnalyze: "EXPLAIN ANALYZE SELECT * FROM t WHERE id = 1",
    plans.ExplainChange: "EXPLAIN DELETE FROM t WHERE id = 1",
    plans.Insert: "INSERT INTO t VALUES (1, '1', 1) ON CONFLICT (id) DO UPDATE SET n = t.a::int",
    plans.Update: "UPDATE t SET n = a::int WHERE id = 1 OR a::int > 0 RETURNING *",
    plans.Delete: "DELETE FROM t WHERE id = 1 AND a::int > 0 RETURNING *",
    plans.Merge: "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n",
    plans.WithChanges: "WITH d AS (DELETE FROM t WHERE id = 1 RETURNING *) SELECT * FROM d",
    plans.CreateTableAs: "CREATE TABLE copied AS SELECT *, a::int AS i FROM t",
    plans.CreateView: "CREATE VIEW v AS SELECT *, a::int AS i FROM t",
    plans.CreateMaterializedView: "CREATE MATERIALIZED VIEW m AS SELECT *, a::int AS i FROM t",
    plans.Declare: "DECLARE c CURSOR WITH HOLD FOR SELECT *, a::int FROM t",
    plans.Fetch: "FETCH ALL FROM c",
    plans.Prepare: "PREPARE p AS SELECT *, a::int FROM t WHERE id = $1",
    plans.Execute: "EXECUTE p(1)",
    plans.ShowCreate: "SHOW CREATE TABLE t",
    plans.LockTable: "LOCK TABLE t IN ACCESS SHARE MODE",
    plans.Truncate: "TRUNCATE t",
    plans.CreateIndex: "CREATE INDEX ON m (a)",
    plans.AlterTable: "ALTER TABLE t ADD UNIQUE (a)",
}


def test_no_statement_and_no_relation_shows_hidden_rows(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "admin",
            "CREATE ROLE ann",
            "CREATE TABLE t (id int PRIMARY KEY, a text UNIQUE, n int)",
            f"INSERT INTO t VALUES (1, '{HIDDEN}', 1), (2, '2', 2), (3, '3', 3)",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON t TO ann",
            "GRANT USAGE, CREATE ON SCHEMA public TO ann",
            "GRANT USAGE, CREATE ON CLUSTER quickstart TO ann",
            "CREATE POLICY p ON t USING (id <> 1)",
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        )
        session = await env.session("ann")
        await env.ran("ann", "SET SESSION AUTHORIZATION ann")
        for kind, sql in STATEMENTS.items():
            prepared = await session.extended.parse("", sql, ())
            await session.extended.sync()
            assert isinstance(prepared.made.plan, kind), (sql, prepared.made.plan)
            answer = await env.query("ann", sql)
            assert HIDDEN not in answer, (sql, answer)
            failing = ("TRUNCATE", "LOCK", "INSERT", "ALTER")
            assert sql.startswith(failing) or "ERROR" not in answer, (sql, answer)
        for name in ("copied", "v", "m"):
            answer = await env.ran("ann", f"SELECT * FROM {name}")
            assert HIDDEN not in answer, answer
            assert answer.endswith("SELECT 2"), answer
        for sql in ("INSERT INTO t VALUES (9, '4471kingfisher', 1)", "UPDATE t SET a = '2'"):
            answer = await env.query("ann", sql)
            assert answer.startswith("ERROR 23505"), answer
            assert "DETAIL" not in answer, answer
        for each in sorted(BUILTINS.values(), key=lambda each: (each.schema, each.name)):
            answer = await env.query("ann", f"SELECT * FROM {each.schema}.{each.name}")
            shown = answer.replace("INSERT INTO t VALUES (9, '4471kingfisher', 1)", "")
            assert HIDDEN not in shown, (each.name, answer)

    in_environment(tmp_path, scenario)


async def test_policies_follow_the_new_name_of_a_column_of_a_known_key(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0)",
        "CREATE POLICY more ON t USING (id > 1)",
        "ALTER TABLE t RENAME COLUMN id TO number",
    )
    shown = await env.query("a", "SELECT qual FROM pg_policies")
    assert "number > 1" in shown, shown
