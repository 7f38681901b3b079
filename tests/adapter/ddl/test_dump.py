"""SHOW CREATE ALL has roles, owners and rights: its statements make an equal system of a new one."""

from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment

MADE = (
    "CREATE ROLE ann LOGIN PASSWORD 'a long one' CONNECTION LIMIT 9 VALID UNTIL '2027-01-01 12:00+01'",
    """CREATE ROLE "Bob's" CREATEDB CREATECLUSTER CREATEROLE CREATENETWORKPOLICY NOINHERIT""",
    "CREATE ROLE readers",
    "CREATE ROLE power LOGIN SUPERUSER BYPASSRLS",
    "GRANT readers TO ann WITH ADMIN OPTION",
    """GRANT readers TO "Bob's" GRANTED BY ann""",
    "GRANT pg_read_all_data TO ann",
    "COMMENT ON ROLE ann IS 'it''s ann'",
    "CREATE NETWORK POLICY office (RULES (here (ACTION = 'allow', DIRECTION = 'ingress', ADDRESS = "
    """'127.0.0.0/8'), "There" (ACTION = 'allow', DIRECTION = 'ingress', ADDRESS = '::/0')))""",
    "COMMENT ON NETWORK POLICY office IS 'ours'",
    "ALTER NETWORK POLICY office OWNER TO power",
    "ALTER ROLE ann SET network_policy = office",
    """ALTER ROLE ann SET search_path = "$user", public, "My Schema" """,
    "ALTER ROLE ann SET statement_timeout = '10s'",
    "ALTER ROLE readers SET search_path = ''",
    "ALTER ROLE power SET role = 'ann'",
    "ALTER ROLE power SET my.own = 'it''s x'",
    "ALTER SYSTEM SET audit_retention = '90d'",
    "ALTER SYSTEM SET network_policy = office",
    'CREATE SCHEMA "My Schema" AUTHORIZATION ann',
    "CREATE CLUSTER extra (SIZE = 'embedded', REPLICATION FACTOR = 0)",
    "ALTER CLUSTER extra OWNER TO ann",
    "GRANT USAGE ON CLUSTER extra TO readers",
    "REVOKE USAGE ON CLUSTER quickstart FROM PUBLIC",
    "GRANT CREATE ON SCHEMA public TO readers WITH GRANT OPTION",
    "REVOKE USAGE ON SCHEMA public FROM PUBLIC",
    """GRANT USAGE ON SCHEMA public TO ann, readers, "Bob's" """,
    "CREATE TYPE mood AS ENUM ('low', 'high')",
    "CREATE TABLE t (id serial PRIMARY KEY, a int, b text, m mood)",
    "CREATE INDEX t_a ON t (a)",
    "ALTER TABLE t OWNER TO ann",
    "GRANT SELECT, INSERT ON t TO readers WITH GRANT OPTION",
    "GRANT DELETE ON t TO readers",
    "SET ROLE readers",
    """GRANT SELECT ON t TO "Bob's" WITH GRANT OPTION""",
    """SET ROLE "Bob's" """,
    "GRANT SELECT ON t TO power",
    "RESET ROLE",
    "GRANT UPDATE (a), REFERENCES (a), UPDATE (b) ON t TO readers WITH GRANT OPTION",
    "SET ROLE readers",
    """GRANT UPDATE (a) ON t TO "Bob's" """,
    "RESET ROLE",
    "CREATE TABLE given (a int)",
    "CREATE ROLE abel",
    "GRANT UPDATE ON given TO readers WITH GRANT OPTION",
    "GRANT SELECT ON given TO ann WITH GRANT OPTION",
    "SET ROLE readers",
    "GRANT UPDATE ON given TO ann WITH GRANT OPTION",
    "SET ROLE ann",
    "GRANT UPDATE ON given TO abel",
    "GRANT UPDATE (a) ON given TO power",
    "RESET ROLE",
    "REVOKE TRUNCATE ON t FROM ann",
    "CREATE POLICY p ON t FOR SELECT TO readers USING (a > 0)",
    "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "CREATE FUNCTION f(m mood, x int[]) RETURNS int LANGUAGE sql RETURN 1",
    "CREATE FUNCTION f(m mood[]) RETURNS int LANGUAGE sql RETURN 1",
    "COMMENT ON FUNCTION f(mood, int[]) IS 'of moods'",
    "REVOKE EXECUTE ON FUNCTION f(mood, int[]) FROM PUBLIC",
    "GRANT EXECUTE ON FUNCTION f(mood[]) TO ann WITH GRANT OPTION",
    "ALTER FUNCTION f(mood[]) OWNER TO ann",
    "CREATE FUNCTION width(y int[]) RETURNS int LANGUAGE sql RETURN (SELECT max(v) FROM unnest(y) v)",
    "CREATE AGGREGATE widest(int) (SFUNC = array_append, STYPE = int[], FINALFUNC = width)",
    "ALTER AGGREGATE widest(int) OWNER TO ann",
    "CREATE DOMAIN amount AS int",
    "REVOKE USAGE ON TYPE mood FROM PUBLIC",
    "GRANT USAGE ON DOMAIN amount TO ann",
    "ALTER DOMAIN amount OWNER TO ann",
    "ALTER TYPE mood OWNER TO ann",
    "CREATE SEQUENCE s",
    "GRANT USAGE ON SEQUENCE s TO ann",
    "ALTER SEQUENCE s OWNER TO ann",
    "CREATE VIEW v AS SELECT a FROM t",
    "ALTER VIEW v OWNER TO ann",
    "GRANT SELECT ON v TO PUBLIC",
    'CREATE MATERIALIZED VIEW "My Schema".mv IN CLUSTER extra AS SELECT count(*) AS n FROM v',
    'ALTER MATERIALIZED VIEW "My Schema".mv OWNER TO ann',
    "CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', DATABASE 'd', USER 'u')",
    "ALTER CONNECTION pg OWNER TO ann",
    "GRANT USAGE ON CONNECTION pg TO readers",
    "CREATE SOURCE shop FROM LOAD GENERATOR MARKETING (TICK INTERVAL '1 h') FOR ALL TABLES",
    "ALTER SOURCE shop OWNER TO ann",
    "GRANT SELECT ON leads TO readers",
    "ALTER SOURCE clicks OWNER TO power",
    "COMMENT ON TABLE leads IS 'of the shop'",
    "COMMENT ON COLUMN leads.id IS 'its number'",
    "CREATE METRIC of_leads FROM \"My Schema\".mv VALUE n",
    "ALTER METRIC of_leads OWNER TO ann",
    "CREATE SUBSCRIPTION of_v FOR t",
    "ALTER SUBSCRIPTION of_v OWNER TO ann",
    "ALTER DEFAULT PRIVILEGES FOR ROLE ann IN SCHEMA public GRANT SELECT, INSERT ON TABLES TO readers"
    " WITH GRANT OPTION",
    "ALTER DEFAULT PRIVILEGES FOR ROLE ann REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC",
    "ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO readers",
)  # fmt: skip
DUMPED = {
    "COMMENT ON SOURCE public.leads IS 'of the shop'",
    "ALTER SOURCE public.clicks OWNER TO power",
    "CREATE ROLE readers",
    'GRANT readers TO "Bob\'s" GRANTED BY ann',
    """ALTER ROLE ann SET search_path TO "$user", public, "My Schema\"""",
    "ALTER ROLE readers SET search_path TO ''",
    "ALTER SYSTEM SET network_policy TO 'office'",
    "ALTER TABLE public.t OWNER TO ann",
    "REVOKE TRUNCATE ON TABLE public.t FROM ann",
    "GRANT DELETE ON TABLE public.t TO readers",
    "GRANT INSERT, SELECT ON TABLE public.t TO readers WITH GRANT OPTION",
    'SET ROLE "Bob\'s"',
    "GRANT UPDATE (b) ON TABLE public.t TO readers WITH GRANT OPTION",
    "REVOKE EXECUTE ON FUNCTION public.f(public.mood, integer[]) FROM PUBLIC",
    "ALTER DEFAULT PRIVILEGES FOR ROLE foreshore GRANT USAGE ON SCHEMAS TO readers",
}


async def dumped(env: TestEnvironment) -> list[str]:
    lines = (await env.ran("s", "SHOW CREATE ALL")).splitlines()[:-1]
    return [each.split("|", 2)[2].rpartition("|")[0] for each in lines]


@pytest.mark.full
async def test_dump_makes_roles_owners_and_rights_again(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    await own_env.ran("s", *MADE)
    first = await dumped(own_env)
    assert set(first) >= DUMPED
    assert "a long one" not in str(first)
    assert "SCRAM" not in str(first)
    await own_env.ran("s", 'SET ROLE "Bob\'s"')
    assert "ALTER SYSTEM" not in str(await dumped(own_env))
    again = TestEnvironment(tmp_path / "again")
    await again.open()
    try:
        await again.ran("s", *first)
        assert await dumped(again) == first
    finally:
        await again.close()


async def test_dump_has_the_history_that_sources_keep(own_env: TestEnvironment) -> None:
    await own_env.ran(
        "s",
        "CREATE SOURCE hooks FROM WEBHOOK BODY FORMAT JSON",
        "ALTER SOURCE hooks SET (RETAIN HISTORY FOR '1 hour')",
        "CREATE SOURCE shop FROM LOAD GENERATOR MARKETING (TICK INTERVAL '1 h') FOR ALL TABLES",
        "ALTER SOURCE leads SET (RETAIN HISTORY FOR '2 days')",
    )
    altered = [each for each in await dumped(own_env) if " SET (" in each]
    assert altered == [
        "ALTER SOURCE public.hooks SET (RETAIN HISTORY FOR '01:00:00')",
        "ALTER SOURCE public.leads SET (RETAIN HISTORY FOR '48:00:00')",
    ]
    await own_env.ran("s", *altered, "ALTER SOURCE hooks RESET (RETAIN HISTORY)")
    assert len([each for each in await dumped(own_env) if " SET (" in each]) == 1
