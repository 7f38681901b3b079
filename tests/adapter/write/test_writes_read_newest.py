"""Writes read the newest time at every isolation level."""

import asyncio
from collections.abc import Iterator

from tests.adapter.harness import TestEnvironment, until

# Of tables with the keys 1 and 2. A view says 2; so long as it is behind it says 1.
WRITES = {
    "INSERT INTO {t} SELECT k, 'new' FROM {known}": ("INSERT 0 1", "1|old 2|new 2|old"),
    "UPDATE {t} SET v = 'new' WHERE k IN (SELECT k FROM {known})": ("UPDATE 1", "1|old 2|new"),
    "UPDATE {keyed} SET v = 'new' FROM {known} AS f WHERE {keyed}.k = f.k": (
        "UPDATE 1",
        "1|old 2|new",
    ),
    "DELETE FROM {t} WHERE k IN (SELECT k FROM {known})": ("DELETE 1", "1|old"),
    "DELETE FROM {keyed} USING {known} AS f WHERE {keyed}.k = f.k": ("DELETE 1", "1|old"),
    "MERGE INTO {t} USING {known} AS f ON {t}.k = f.k WHEN MATCHED THEN DELETE": (
        "MERGE 1",
        "1|old",
    ),
    "MERGE INTO {keyed} USING {known} AS f ON {keyed}.k = f.k WHEN MATCHED THEN UPDATE SET v = 'new'": (
        "MERGE 1",
        "1|old 2|new",
    ),
    "SELECT * FROM {t} WHERE k IN (SELECT k FROM {known}) FOR UPDATE": (
        "2|old\nSELECT 1",
        "1|old 2|old",
    ),
    "SELECT {keyed}.k FROM {keyed}, {known} AS f WHERE {keyed}.k = f.k FOR UPDATE OF {keyed} SKIP LOCKED": (
        "2\nSELECT 1",
        "1|old 2|old",
    ),
    "UPDATE {keyed} SET v = 'new' WHERE k = 2": ("UPDATE 1", "1|old 2|new"),
    "DELETE FROM {keyed} WHERE k = 2": ("DELETE 1", "1|old"),
    "TRUNCATE {t}": ("TRUNCATE TABLE", ""),
}


async def test_write_waits_for_late_view(own_env: TestEnvironment) -> None:
    for sql in (
        "CREATE CLUSTER c (SIZE 'embedded')",
        *(each for i in range(len(WRITES)) for each in _made(i)),
        "DROP CLUSTER REPLICA c.r1",
        *(f"UPDATE source{i} SET k = 2" for i in range(len(WRITES))),
    ):
        assert "ERROR" not in (answer := await own_env.query("s", sql)), answer
    writing: dict[str, asyncio.Task[str]] = {}
    for i, sql in enumerate(WRITES):
        own = sql.format(t=f"t{i}", keyed=f"keyed{i}", known=f"known{i}")
        await own_env.query(sql, "SET default_transaction_isolation = 'bounded staleness 1h'")
        assert "ERROR 25006" in await own_env.query(sql, own)
        await own_env.query(sql, "SET default_transaction_isolation = 'serializable'")
        assert await own_env.query(sql, f"SELECT * FROM known{i}") == "1\nSELECT 1"  # behind
        writing[sql] = asyncio.create_task(own_env.query(sql, own, alone=False))

    def chosen(sql: str) -> bool:
        transaction = own_env.sessions[sql].transactions.running
        return writing[sql].done() or (transaction is not None and transaction.time is not None)

    await until(lambda: all(map(chosen, WRITES)))
    await own_env.query("s", "CREATE CLUSTER REPLICA c.r2 (SIZE 'embedded')", alone=False)
    for i, (sql, (answer, left)) in enumerate(WRITES.items()):
        assert await writing[sql] == answer, sql
        table = "keyed" if "{keyed}" in sql else "t"
        rows = await own_env.query("s", f"SELECT k, v FROM {table}{i} ORDER BY k, v")
        assert " ".join(rows.splitlines()[:-1]) == left, sql


def _made(i: int) -> Iterator[str]:
    """Yield what makes the tables and the view of one of the statements."""
    for name in (f"t{i} (k int, v text)", f"keyed{i} (k int PRIMARY KEY, v text)"):
        yield f"CREATE TABLE {name}"
        yield f"INSERT INTO {name.split()[0]} VALUES (1, 'old'), (2, 'old')"
    yield f"CREATE TABLE source{i} (k int); INSERT INTO source{i} VALUES (1)"
    yield f"CREATE MATERIALIZED VIEW known{i} IN CLUSTER c AS SELECT k FROM source{i}"
    yield f"SELECT * FROM known{i}"
