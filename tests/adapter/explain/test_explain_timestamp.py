"""EXPLAIN TIMESTAMP shows the time and the inputs that the query would read."""

import re

from tests.adapter.harness import TestEnvironment, until


async def explained(env: TestEnvironment, query: str) -> tuple[int, set[str]]:
    """Return the time that EXPLAIN TIMESTAMP gives, and the sources that it lists."""
    text = await env.query("explain", f"EXPLAIN TIMESTAMP FOR {query}")
    found = re.search(r"query timestamp: +(\d+)", text)
    assert found is not None, text
    return int(found[1]), set(re.findall(r"^source (.*):$", text, re.MULTILINE))


async def test_explain_timestamp_in_block_shows_block_time(env: TestEnvironment) -> None:
    await env.query("explain", "CREATE TABLE held (i int)")
    await env.query("explain", "SET emit_timestamp_notice = on")
    await env.query("explain", "BEGIN")
    answer = await env.query("explain", "SELECT i FROM held")
    found = re.search(r"query timestamp: (\d+)", answer)
    assert found is not None, answer
    await env.query("other", "INSERT INTO held VALUES (1)")
    assert await explained(env, "SELECT i FROM held") == (
        int(found[1]),
        {"foreshore.public.held"},
    )
    await env.query("explain", "COMMIT")
    time, _ = await explained(env, "SELECT i FROM held")
    assert time > int(found[1])


async def test_explain_timestamp_before_index_is_readable(env: TestEnvironment) -> None:
    coordinator = env.environment.coordinator
    await env.query("explain", "CREATE TABLE told (i int); INSERT INTO told VALUES (1)")
    await env.query("explain", "CREATE VIEW seen AS SELECT i + 1 AS j FROM told")
    before = coordinator.oracle.read_ts()
    await env.query("explain", "INSERT INTO told VALUES (2)")
    await env.query("explain", "CREATE INDEX seen_j ON seen (j)")
    (index,) = [each for each in coordinator.state.items() if each.name == "seen_j"]
    await until(lambda: coordinator.is_hydrated(index.id))
    assert coordinator.since(index.id) > before
    query = "SELECT j FROM seen WHERE j > 0"
    _, sources = await explained(env, query)
    assert sources == {"foreshore.public.seen_j"}
    past = f"{query} AS OF {before}"
    assert (await env.query("explain", past)).startswith("2\n")
    assert await explained(env, past) == (before, {"foreshore.public.told"})
