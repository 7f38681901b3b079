"""Rights are compared again after the changes of the catalog that may take some away, no others."""

import pytest

from foreshore.catalog.watch import may_change_rights
from tests.adapter.harness import TestEnvironment


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("DROP TABLE t", False),
        ("DROP VIEW v", False),
        ("DROP SCHEMA s", False),
        ("CREATE TABLE other (a int)", False),
        ("CREATE ROLE other", False),
        ("ALTER TABLE t RENAME TO other", False),
        ("ALTER ROLE reader SET search_path = 's'", False),
        ("ALTER ROLE reader PASSWORD 'secret'", False),
        ("ALTER ROLE reader CREATEDB CONNECTION LIMIT 5", False),
        ("ALTER ROLE reader RENAME TO other", False),
        ("DROP ROLE reader", True),
        ("ALTER ROLE reader SUPERUSER", True),
        ("ALTER ROLE reader NOINHERIT", True),
        ("ALTER ROLE reader BYPASSRLS", True),
        ("GRANT grp TO reader", True),
        ("GRANT SELECT ON t TO reader", True),
        ("GRANT SELECT (a) ON t TO reader", True),
        ("ALTER TABLE t OWNER TO grp", True),
        ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", True),
        ("ALTER TABLE t FORCE ROW LEVEL SECURITY", True),
        ("CREATE POLICY other ON t USING (a = 2)", True),
        ("ALTER POLICY p ON t USING (a = 2)", True),
        ("DROP POLICY p ON t", True),
        ("ALTER VIEW v SET (security_invoker = true)", True),
    ],
)
async def test_changes_that_may_take_rights_away(
    own_env: TestEnvironment, change: str, expected: bool
) -> None:
    env = own_env
    await env.ran(
        "admin",
        "CREATE ROLE reader NOSUPERUSER",
        "CREATE ROLE grp",
        "CREATE SCHEMA s",
        "CREATE TABLE secured (a int)",
        "ALTER TABLE secured ENABLE ROW LEVEL SECURITY",
        "CREATE TABLE t (a int, b int)",
        "CREATE VIEW v AS SELECT a FROM secured",
    )
    if "POLICY" in change:
        await env.ran("admin", "CREATE POLICY p ON t USING (a = 1)")
    before = env.environment.coordinator.state
    await env.ran("admin", change)
    assert may_change_rights(before, env.environment.coordinator.state) is expected
