"""Only superusers say on which other machine a cluster works: rows and queries are sent there."""

import pytest

from foreshore.processes.transport import SECRET_VARIABLE
from tests.adapter.harness import TestEnvironment

ADDRESS = "must be superuser to create a replica at an address"
MASTER = "must be superuser to use a remote Spark master"
STATEMENTS = [
    ("CREATE CLUSTER REPLICA mine.r (ADDRESS '127.0.0.1:1')", ADDRESS),
    ("CREATE CLUSTER other (SIZE = 'spark', MASTER = 'spark://127.0.0.1:1')", MASTER),
    ("CREATE CLUSTER other (SIZE = 'spark', MASTER = 'k8s://https://127.0.0.1:1')", MASTER),
    ("CREATE CLUSTER other (SIZE = 'spark', MASTER = 'yarn')", MASTER),
    ("CREATE CLUSTER other (SIZE = 'spark:spark://127.0.0.1:1')", MASTER),
    ("CREATE CLUSTER other (SIZE = 'spark:local://127.0.0.1:1')", MASTER),
    ("CREATE CLUSTER other REPLICAS (a (SIZE 'embedded'), b (SIZE 'spark:spark://h:1'))", MASTER),
    ("CREATE CLUSTER REPLICA mine.r SIZE 'spark:spark://127.0.0.1:1'", MASTER),
    ("ALTER CLUSTER mine SET (SIZE = 'spark:spark://127.0.0.1:1')", MASTER),
    ("ALTER CLUSTER mine SET (SIZE = 'spark', MASTER = 'spark://127.0.0.1:1')", MASTER),
    (
        "CREATE CLUSTER other (SIZE = 'embedded', AUTO SCALING STRATEGY ="
        " (ON HYDRATION (HYDRATION SIZE = 'spark:spark://127.0.0.1:1')))",
        MASTER,
    ),
    (
        "ALTER CLUSTER mine SET (AUTO SCALING STRATEGY ="
        " (ON HYDRATION (HYDRATION SIZE = 'spark:yarn')))",
        MASTER,
    ),
]


@pytest.mark.parametrize(("statement", "told"), STATEMENTS)
async def test_a_role_names_no_other_machine(
    env: TestEnvironment, statement: str, told: str
) -> None:
    for sql in (
        "DROP CLUSTER IF EXISTS mine CASCADE",
        "DROP ROLE IF EXISTS maker",
        "CREATE ROLE maker CREATECLUSTER",
    ):
        assert "ERROR" not in await env.query("admin", sql)
    assert "ERROR" not in await env.query("maker", "SET SESSION AUTHORIZATION maker")
    await env.ran("maker", "CREATE CLUSTER mine (SIZE = 'embedded', REPLICATION FACTOR = 0)")
    assert await env.query("maker", statement) == f"ERROR 42501: {told}"


async def test_no_replica_is_at_an_address_without_a_secret(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    await env.ran("a", "CREATE CLUSTER far (SIZE = 'embedded', REPLICATION FACTOR = 0)")
    answer = await env.query("a", "CREATE CLUSTER REPLICA far.r (ADDRESS '127.0.0.1:1')")
    assert answer.startswith(f"ERROR 55000: {SECRET_VARIABLE} is not set\nDETAIL: "), answer
    await env.ran("a", "DROP CLUSTER far")
    await env.query("maker", "RESET SESSION AUTHORIZATION")


async def test_a_role_has_spark_on_this_machine(env: TestEnvironment) -> None:
    await env.ran(
        "admin",
        "DROP CLUSTER IF EXISTS mine CASCADE",
        "DROP ROLE IF EXISTS maker",
        "CREATE ROLE maker CREATECLUSTER",
    )
    await env.ran("maker", "SET SESSION AUTHORIZATION maker")
    for number, size in enumerate(("'spark'", "'spark:local[2]'", "'spark', MASTER = 'local'")):
        made = f"CREATE CLUSTER here{number} (SIZE = {size}, REPLICATION FACTOR = 0)"
        assert await env.query("maker", made) == "CREATE CLUSTER"
        assert await env.query("maker", f"DROP CLUSTER here{number}") == "DROP CLUSTER"
    await env.query("maker", "RESET SESSION AUTHORIZATION")
