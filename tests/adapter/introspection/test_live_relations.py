"""Relations about sessions, locks and storage: live values with columns from the catalog."""

from tests.adapter.harness import TestEnvironment


async def test_live_rows_have_oids_and_constants_of_the_catalog(env: TestEnvironment) -> None:
    await env.query("a", "CREATE TABLE sized (i int)")
    await env.query("a", "SELECT pg_advisory_lock(7)")
    known = "(SELECT oid FROM pg_database WHERE datname = current_database())"
    answers = {
        f"SELECT database = {known}, locktype, mode, granted, fastpath, objid FROM pg_locks": (
            "t|advisory|ExclusiveLock|t|f|7"
        ),
        "SELECT role, database, state, client_address FROM mz_internal.mz_sessions"
        " WHERE connection_id = pg_backend_pid()": "foreshore|foreshore|active|NULL",
        f"SELECT datid = {known}, datname, usename, backend_type, xact_start IS NULL"
        " FROM pg_stat_activity WHERE pid = pg_backend_pid()": (
            "t|foreshore|foreshore|client backend|f"
        ),
        "SELECT setting, category, context, vartype, source FROM pg_settings WHERE name = 'jit'": (
            "off|Query Tuning / Other Planner Options|user|bool|default"
        ),
        "SELECT s.size_bytes = pg_table_size('sized') FROM mz_internal.mz_storage_sizes s"
        " JOIN pg_class c USING (oid) WHERE relname = 'sized'": "t",
    }
    for query, row in answers.items():
        assert await env.query("a", query) == f"{row}\nSELECT 1", query


async def test_variable_is_the_same_by_name_and_among_all(env: TestEnvironment) -> None:
    await env.ran("n", "SET work_mem = '5MB'", "SET app.mine = 'x'")
    for name in (
        "TimeZone",
        "DateStyle",
        "work_mem",
        "bytea_output",
        "app.mine",
        "max_connections",
    ):
        among_all = await env.query("n", f"SELECT * FROM pg_settings WHERE name || '' = '{name}'")
        by_name = await env.query("n", f"SELECT * FROM pg_settings WHERE name = '{name}'")
        assert by_name == among_all
        assert by_name.endswith("SELECT 1")
    by_value = "SELECT name FROM pg_settings WHERE setting = '5120'"
    assert await env.query("n", by_value) == "work_mem\nSELECT 1"
    for name in ("timezone", "none", "App.mine"):
        none = f"SELECT * FROM pg_settings WHERE name = '{name}'"
        assert await env.query("n", none) == "SELECT 0"
