"""A statement that names thousands of objects, roles or columns holds nobody else up."""

import asyncio

import pytest

from foreshore.adapter.client import Startup
from foreshore.loop_watchdog import LIMIT_S, Stall, Watchdog
from tests.adapter.harness import TestEnvironment
from tests.loop_guard import OWN, is_slow

pytestmark = pytest.mark.full

N = 10_000
KINDS = {
    "objects of GRANT": "GRANT SELECT ON {t} TO ann",
    "grantees of GRANT": "GRANT SELECT ON t TO {ann}",
    "columns of GRANT": "GRANT SELECT ({x}) ON t TO ann",
    "rights of GRANT": "GRANT {SELECT (x)} ON t TO ann",
    "schemas of GRANT": "GRANT USAGE ON SCHEMA {public} TO ann",
    "schemas of GRANT ON ALL": "GRANT SELECT ON ALL TABLES IN SCHEMA {public} TO ann",
    "functions of GRANT": "GRANT EXECUTE ON FUNCTION {f(int)} TO ann",
    "types of GRANT": "GRANT USAGE ON TYPE {e} TO ann",
    "databases of GRANT": "GRANT CONNECT ON DATABASE {foreshore} TO ann",
    "roles of GRANT": "GRANT {ann} TO bob",
    "members of GRANT": "GRANT ann TO {bob}",
    "objects of REVOKE": "REVOKE SELECT ON {t} FROM ann",
    "grantees of REVOKE": "REVOKE SELECT ON t FROM {ann}",
    "roles of REVOKE": "REVOKE {ann} FROM bob",
    "roles of default rights": (
        "ALTER DEFAULT PRIVILEGES FOR ROLE {foreshore} GRANT SELECT ON TABLES TO ann"
    ),
    "schemas of default rights": (
        "ALTER DEFAULT PRIVILEGES IN SCHEMA {public} GRANT SELECT ON TABLES TO ann"
    ),
    "grantees of default rights": "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {ann}",
    "missing tables": "DROP TABLE IF EXISTS {t#}",
    "missing indexes": "DROP INDEX IF EXISTS {t#}",
    "missing types": "DROP TYPE IF EXISTS {t#}",
    "missing schemas": "DROP SCHEMA IF EXISTS {t#}",
    "missing functions": "DROP FUNCTION IF EXISTS {f#(int)}",
    "missing roles": "DROP ROLE IF EXISTS {t#}",
    "missing clusters": "DROP CLUSTER IF EXISTS {t#}",
    "roles of DROP OWNED": "DROP OWNED BY {ann}",
    "roles of REASSIGN OWNED": "REASSIGN OWNED BY {ann} TO bob",
    "members of a new role": "CREATE ROLE new ROLE {ann}",
    "tables of TRUNCATE": "TRUNCATE {t}",
    "tables of VACUUM": "VACUUM {t}",
    "columns of ANALYZE": "ANALYZE t ({x})",
    "names of SET": "SET search_path TO {t#}",
    "constraints of SET": "SET CONSTRAINTS {t#} DEFERRED",
    "columns of COPY": "COPY t ({x#}) FROM STDIN",
    "roles of a policy": "ALTER POLICY p ON t TO {ann}",
}


def _written(kind: str) -> str:
    before, _, rest = KINDS[kind].partition("{")
    each, _, after = rest.partition("}")
    return before + ", ".join(each.replace("#", str(i)) for i in range(N)) + after


@pytest.mark.parametrize("kind", KINDS)
async def test_long_list_holds_up_nobody(own_env: TestEnvironment, kind: str) -> None:
    env, sql = own_env, _written(kind)
    await env.ran(
        "foreshore",
        "CREATE TABLE t (x int)",
        "CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN",
        "CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql AS 'select 1'",
        "CREATE TYPE e AS ENUM ('a')",
        "CREATE POLICY p ON t USING (true)",
    )
    env.sessions["ann"] = await env.environment.connect(Startup("ann", "foreshore", {}))
    found: list[Stall] = []
    watchdog = Watchdog(found.append, LIMIT_S)
    watchdog.start()
    try:
        for user in ("ann", "foreshore"):
            answer = await env.query(user, sql, alone=False)
            await asyncio.sleep(0)
            slow = [each for each in found if each.cause in OWN and is_slow(each.seconds)]
            assert not slow, (user, answer[:80], slow)
    finally:
        watchdog.close()
