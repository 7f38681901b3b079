"""A catalog that names what does not exist, as older versions could leave one behind."""

import pytest

from foreshore.adapter.coordinator import catalog_commit
from foreshore.adapter.transaction.catalog_change import CatalogChange
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.item import Database, NetworkPolicy, Object, Role, Schema
from foreshore.catalog.state import with_objects
from tests.adapter.harness import TestEnvironment

DROPPED = (
    "CREATE ROLE cc",
    "CREATE ROLE dd",
    "CREATE ROLE ee",
    "CREATE DATABASE elsewhere",
    "CREATE SCHEMA gone",
    "CREATE NETWORK POLICY np (RULES (r (ACTION = 'allow', DIRECTION = 'ingress',"
    " ADDRESS = '0.0.0.0/0')))",
    "CREATE TABLE ut (a int, b int)",
    "CREATE VIEW uv AS SELECT a FROM ut",
    "CREATE FUNCTION uf(int) RETURNS int LANGUAGE sql AS 'SELECT $1'",
    "CREATE TYPE ue AS ENUM ('x')",
    "CREATE SEQUENCE us",
    "CREATE SECRET ux AS 'x'",
    "GRANT SELECT ON ut TO cc WITH GRANT OPTION",
    "GRANT SELECT (b) ON ut TO cc WITH GRANT OPTION",
    "SET ROLE cc",
    "GRANT SELECT ON ut TO dd",
    "GRANT SELECT (b) ON ut TO dd",
    "RESET ROLE",
    "GRANT USAGE ON SCHEMA public TO cc",
    "GRANT EXECUTE ON FUNCTION uf(int) TO cc",
    "GRANT USAGE ON TYPE ue TO cc",
    "GRANT USAGE ON CLUSTER quickstart TO cc",
    "GRANT CONNECT ON DATABASE foreshore TO cc",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO cc",
    "ALTER DEFAULT PRIVILEGES FOR ROLE dd IN SCHEMA gone GRANT SELECT ON TABLES TO ee",
    "GRANT cc TO dd",
    "GRANT ee TO dd GRANTED BY cc",
    "ALTER ROLE dd IN DATABASE elsewhere SET TimeZone = 'UTC'",
    "ALTER ROLE dd SET network_policy = np",
    "CREATE POLICY up ON ut TO cc, ee",
    "ALTER TABLE ut ENABLE ROW LEVEL SECURITY",
    "CREATE TABLE owned (a int)",
    "CREATE VIEW owned_view AS SELECT a FROM ut",
    "GRANT SELECT ON owned_view TO dd",
    "CREATE CONNECTION lost TO POSTGRES (HOST '127.0.0.1', PORT 1, DATABASE 'd', USER 'u',"
    " PASSWORD SECRET ux) WITH (VALIDATE = false)",
    "CREATE SINK exported FROM owned INTO POSTGRES CONNECTION lost (TABLE 't') KEY (a) NOT ENFORCED",
    "CREATE MATERIALIZED VIEW lost_total AS SELECT 'all' AS k, count(*) AS n FROM owned",
    "CREATE INDEX ON lost_total (k)",
    "CREATE METRIC lost_metric FROM lost_total VALUE n LABELS (k) HELP 'h'",
    "ALTER CONNECTION lost OWNER TO cc",
    "ALTER METRIC lost_metric OWNER TO cc",
    "ALTER TABLE owned OWNER TO cc",
    "ALTER VIEW owned_view OWNER TO cc",
    "ALTER SECRET ux OWNER TO cc",
    "CREATE CLUSTER uc (SIZE 'embedded', REPLICATION FACTOR 0)",
    "ALTER CLUSTER uc OWNER TO cc",
)


async def break_catalog(env: TestEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop what others name, as versions did that looked at changed objects only."""
    env.environment.unlock_secrets(bytes(32))
    coordinator = env.environment.coordinator
    with monkeypatch.context() as patched:
        patched.setattr(coordinator.exports, "check", _reach_nothing)
        await env.ran("a", *DROPPED)
    change = coordinator.catalog.transaction()
    gone = {"cc", "elsewhere", "gone", "np"}
    kinds = Role | Database | Schema | NetworkPolicy
    ids: dict[str, Object | None] = {
        each.id: None
        for each in change.state.objects.values()
        if isinstance(each, kinds)
        and (
            each.name in gone
            or (
                isinstance(each, Schema)
                and (whole := change.state.get(each.database or "")) is not None
                and whole.name in gone
            )
        )
    }
    change.state = with_objects(change.state, ids)
    with monkeypatch.context() as patched:
        patched.setattr(catalog_commit, "check_references", lambda *_: None)
        await coordinator.catalog_commits.commit(Write({}), CatalogChange(change))


async def _reach_nothing(*_: object) -> None: ...
