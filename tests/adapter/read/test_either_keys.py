"""Conditions joined by OR, each side of which names a key of its own, are look-ups by both keys."""

import pytest

from tests.adapter.harness import TestEnvironment

TABLES = (
    "DROP TABLE IF EXISTS users, other",
    "CREATE TABLE users (id int PRIMARY KEY, name text NOT NULL UNIQUE, email text, boss int)",
    "CREATE INDEX users_email ON users (email)",
    "CREATE INDEX users_boss ON users (boss)",
    "CREATE TABLE other (k int PRIMARY KEY)",
    "INSERT INTO users SELECT i, 'n' || i, 'e' || i / 2, i / 10 FROM generate_series(0, 99) AS i",
)


async def made(env: TestEnvironment) -> None:
    for name in list(env.sessions):
        await env.query(name, "ROLLBACK")
    await env.ran("w", *TABLES)


@pytest.mark.parametrize(
    ("condition", "ids", "names"),
    [
        ("id = 7 OR email = 'e3'", "6 7", ["users_pkey", "users_email"]),
        ("name = 'n4' OR email = 'n4'", "4", ["users_name_key", "users_email"]),
        ("email = 'e3' OR boss = 9", "6 7 90 91 92 93 94 95 96 97 98 99", ["users_pkey"]),
        ("boss = 0 AND (id = 3 OR name = 'n99')", "3", ["users_pkey", "users_name_key"]),
        ("id IN (1, 2, 3) OR name = ANY ('{n2,n5}')", "1 2 3 5", ["users_pkey", "users_name_key"]),
        ("id = NULL OR email = 'e3'", "6 7", ["users_email"]),
    ],
)
async def test_either_key_finds_rows(
    env: TestEnvironment, condition: str, ids: str, names: list[str]
) -> None:
    await made(env)
    query = f"SELECT id FROM users WHERE {condition} ORDER BY id"
    assert (await env.query("s", query)).split()[:-2] == ids.split()
    told = await env.query("s", f"EXPLAIN {query}")
    assert all(f"{name} of foreshore.public.users" in told for name in names), told


async def test_rows_of_either_key_are_changed_and_locked_once(env: TestEnvironment) -> None:
    await made(env)
    found = "id = 6 OR email = 'e3'"
    assert await env.query("s", f"UPDATE users SET boss = boss + 1 WHERE {found}") == "UPDATE 2"
    assert (await env.query("s", f"SELECT boss FROM users WHERE {found}")).split()[:2] == ["1", "1"]
    await env.ran("s", "BEGIN")
    locked = await env.ran("s", f"SELECT id FROM users WHERE {found} ORDER BY id FOR UPDATE")
    assert locked.split()[:2] == ["6", "7"]
    nowait = await env.query("t", "SELECT id FROM users WHERE id = 7 FOR UPDATE NOWAIT")
    assert "55P03" in nowait
    await env.ran("s", "COMMIT")
    assert await env.query("s", f"DELETE FROM users WHERE {found} RETURNING id") == (
        "6\n7\nDELETE 2"
    )


async def test_row_inserted_under_either_key_conflicts(env: TestEnvironment) -> None:
    for row, refused in (("100, 'n100', 'e200'", True), ("101, 'n200', 'x'", False)):
        await made(env)
        count = "SELECT count(*) FROM users WHERE email = 'e200' OR name = 'n0'"
        await env.ran("s", "BEGIN ISOLATION LEVEL SERIALIZABLE", count)
        await env.ran("s", "INSERT INTO other VALUES (1)")
        await env.ran("t", f"INSERT INTO users VALUES ({row})")
        assert (await env.query("s", "COMMIT")).startswith("ERROR 40001") is refused
