"""A secret in a statement is in no text that others are shown, whatever becomes of the statement."""

import logging
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, in_environment

PLANTED = "Xy7planted"
STATEMENTS = [
    f"CREATE SECRET k AS '{PLANTED}'",
    f"CREATE SECRT k AS '{PLANTED}'",
    f"CREATE SECRET k AS '{PLANTED}",
    f"ALTER SECRET none AS '{PLANTED}'",
    f"CREATE ROLE a PASSWORD '{PLANTED}'",
    f"CREATE ROLE a PASSWORD {PLANTED}",
    f"ALTER ROLE nobody PASSWORD '{PLANTED}'",
    f"ALTER ROLE nobody PASWORD '{PLANTED}'",
    f"ALTER ROLE nobody PASSWORD $a${PLANTED}",
    f"CREATE CONNECTION c TO POSTGRES (HOST 'h', USER 'u', PASSWORD '{PLANTED}')",
    f"CREATE CONNECTION c TO KAFKA (BROKER 'b', SASL PASSWORD = '{PLANTED}')",
    f"CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL 'http://u:{PLANTED}@h')",
    f"CREATE CONNECTION c TO AWS (ACCESS KEY ID 'a', SECRET ACCESS KEY '{PLANTED}')",
    f"CREATE CONNECTION c TO FOO (PASWORD '{PLANTED}')",
    f"COPY t FROM 's3://key:{PLANTED}@bucket/x.csv'",
    f"COPY t FROM 'https://h/x.csv?X-Amz-Signature={PLANTED}'",
    f"CREATE SUBSCRIPTION s CONNECTION 'host=h password={PLANTED}' PUBLICATION p",
    f"CREATE SOURCE w FROM WEBHOOK BODY FORMAT TEXT CHECK (WITH (HEADERS AS h) h->'k' = '{PLANTED}')",
    f"CREATE SOURCE w FROM WEBHOOK BODY FORMAT NONE CHECK (WITH (HEADERS AS h) h->'k' = '{PLANTED}')",
    f"SET app.api_token = '{PLANTED}'",
    f"SELECT set_config('app.jwt_secret', '{PLANTED}', false)",
    f"SELECT 1 FROM WHERE x = '{PLANTED}'",
    f"SELECT 'postgres://u:{PLANTED}@h/d'::int",
    f"PREPARE p AS SELECT 'postgres://u:{PLANTED}@h/d'",
]
PLACES = [
    "SELECT * FROM pg_stat_activity",
    "SELECT * FROM mz_internal.mz_recent_activity_log",
    "SELECT * FROM mz_catalog.mz_audit_events",
    "SELECT name, statement FROM pg_prepared_statements",
]


def test_planted_secret_is_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def go(env: TestEnvironment) -> None:
        env.environment.unlock_secrets(bytes(range(32)))
        await env.ran("admin", "CREATE TABLE t (a int)", "SET log_statement = 'all'")
        await env.ran("admin", "CREATE ROLE low", "GRANT low TO foreshore")
        for low in (False, True):
            await env.ran("admin", "SET ROLE low" if low else "SET log_statement = 'all'")
            for statement in STATEMENTS:
                await env.query("admin", statement)
                for place in PLACES:
                    answer = await env.query("other", place)
                    assert "ERROR" not in answer, answer
                    assert PLANTED not in answer, (statement, place)
                logged = " ".join(str(each.__dict__) for each in caplog.records)
                assert PLANTED not in logged, statement
                caplog.clear()

    with caplog.at_level(logging.INFO):
        in_environment(tmp_path, go)
