"""Tables of a source that exists: made, added and dropped, each with all of its rows."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment

AUCTION = "CREATE SOURCE s FROM LOAD GENERATOR AUCTION (TICK INTERVAL '2 ms', UP TO 200)"


async def reaches(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until a query has this result."""
    while True:
        if (await env.query("a", query)).splitlines()[0] == expected:
            return
        await asyncio.sleep(0.02)


async def test_a_table_that_is_made_later_has_the_rows_from_the_beginning(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran("a", AUCTION)
    await env.ran("a", "CREATE TABLE bids FROM SOURCE s (REFERENCE bids)")
    await reaches(env, "SELECT count(*) > 300 FROM bids", "t")
    await env.ran("a", "CREATE TABLE u (id, org_id, name) FROM SOURCE s (REFERENCE users)")
    await env.ran("a", "ALTER SOURCE s ADD SUBSOURCE auctions AS a")
    both = "SELECT (SELECT count(*) FROM bids), (SELECT count(*) FROM a)"
    await reaches(env, both, "1990|199")
    await reaches(env, "SELECT count(*) FROM u", "200")
    shown = (await env.query("a", "SHOW CREATE SOURCE u")).splitlines()[0]
    again = shown.split("|")[1].replace("public.u ", "public.again ")
    assert "already" in await env.query("a", again)  # an output has one relation
    await env.ran("a", "ALTER SOURCE s DROP TABLE u")
    await env.ran("a", again)
    await reaches(env, "SELECT count(*) FROM again", "200")
    await env.reopen()
    await reaches(env, both, "1990|199")


async def test_dependents_and_other_relations_are_not_dropped(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", f"{AUCTION} FOR TABLES (users, bids)", "CREATE VIEW v AS SELECT * FROM bids")
    assert "2BP01" in await env.query("a", "ALTER SOURCE s DROP TABLE bids")
    for name in ("s", "s_progress"):
        assert "42809" in await env.query("a", f"ALTER SOURCE s DROP TABLE {name}"), name
    await env.ran("a", "ALTER SOURCE s DROP SUBSOURCE bids CASCADE")
    assert "42P01" in await env.query("a", "SELECT * FROM v")
    await env.ran("a", "ALTER SOURCE s DROP TABLE IF EXISTS bids")
    await env.ran("a", "BEGIN", "ALTER SOURCE s ADD TABLE bids", "ROLLBACK")
    assert "42P01" in await env.query("a", "SELECT * FROM bids")


async def test_statements_about_tables_take_those_of_sources(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", AUCTION, "CREATE TABLE u FROM SOURCE s (REFERENCE users)")
    shown = await env.ran("a", "SHOW CREATE TABLE u")
    assert "CREATE TABLE foreshore.public.u FROM SOURCE foreshore.public.s" in shown, shown
    for name in ("s", "s_progress"):
        assert "42809" in await env.query("a", f"DROP TABLE {name}"), name
    await env.ran("a", "CREATE VIEW v AS SELECT * FROM u")
    assert "2BP01" in await env.query("a", "DROP TABLE u")
    assert await env.ran("a", "DROP TABLE u CASCADE") == (
        "DROP TABLE\nNOTICE: drop cascades to view v"
    )
    assert "42P01" in await env.query("a", "SELECT * FROM u")
    await env.ran("a", "CREATE TABLE u FROM SOURCE s (REFERENCE users)", "DROP SOURCE s CASCADE")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TABLE x FROM SOURCE none (REFERENCE bids)", "42P01"),
        ("CREATE TABLE x FROM SOURCE s (REFERENCE none)", "42P01"),
        ("CREATE TABLE x (id) FROM SOURCE s (REFERENCE users)", "42804"),
        ("CREATE TABLE x FROM SOURCE s_progress (REFERENCE users)", "42809"),
        ("CREATE TABLE s FROM SOURCE s (REFERENCE users)", "42P07"),
        ("ALTER SOURCE s ADD users", "42601"),
        ("ALTER SOURCE none DROP TABLE users", "42P01"),
        ("VALIDATE CONNECTION none", "42704"),
        ("VALIDATE CONNECTION pg", "08006"),
        (
            "CREATE CONNECTION c TO POSTGRES (HOST '127.0.0.1', PORT 1, DATABASE 'd', USER 'u') "
            "WITH (VALIDATE = TRUE)",
            "08006",
        ),
    ],
)
async def test_what_cannot_be_done_is_refused(
    env: TestEnvironment, statement: str, error: str
) -> None:
    await env.ran("a", "CREATE SOURCE IF NOT EXISTS s FROM LOAD GENERATOR AUCTION")
    nowhere = "HOST '127.0.0.1', PORT 1, DATABASE 'd', USER 'u'"
    await env.ran("a", f"CREATE CONNECTION IF NOT EXISTS pg TO POSTGRES ({nowhere})")
    assert f"ERROR {error}" in await env.query("a", statement)
    assert "ERROR 42704" in await env.query("a", "VALIDATE CONNECTION c")
    role = "CREATE ROLE other", "SET ROLE other"
    await env.ran("a", *role)
    assert "ERROR 42501" in await env.query("a", "VALIDATE CONNECTION pg")
    assert "ERROR 42501" in await env.query("a", "ALTER SOURCE s ADD TABLE users")
    await env.ran("a", "RESET ROLE", "DROP ROLE other")
