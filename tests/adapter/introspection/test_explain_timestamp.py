"""EXPLAIN TIMESTAMP says at which time, and of what, the query itself would read."""

import asyncio
import re

from tests.adapter.harness import House, until


async def explained(house: House, query: str) -> tuple[int, set[str]]:
    """Return the time that EXPLAIN TIMESTAMP gives, and the sources that it lists."""
    text = await house.query("explain", f"EXPLAIN TIMESTAMP FOR {query}")
    found = re.search(r"query timestamp: +(\d+)", text)
    assert found is not None, text
    return int(found[1]), set(re.findall(r"^source (.*):$", text, re.MULTILINE))


def test_in_a_transaction_that_has_its_time(runner: asyncio.Runner, house: House) -> None:
    async def scenario() -> None:
        await house.query("explain", "CREATE TABLE held (i int)")
        await house.query("explain", "SET emit_timestamp_notice = on")
        await house.query("explain", "BEGIN")
        answer = await house.query("explain", "SELECT i FROM held")
        found = re.search(r"query timestamp: (\d+)", answer)
        assert found is not None, answer
        await house.query("other", "INSERT INTO held VALUES (1)")
        assert await explained(house, "SELECT i FROM held") == (
            int(found[1]),
            {"foreshore.public.held"},
        )
        await house.query("explain", "COMMIT")
        time, _ = await explained(house, "SELECT i FROM held")
        assert time > int(found[1])

    runner.run(scenario())


def test_before_an_index_could_be_read(runner: asyncio.Runner, house: House) -> None:
    async def scenario() -> None:
        coordinator = house.environment.coordinator
        await house.query("explain", "CREATE TABLE told (i int); INSERT INTO told VALUES (1)")
        await house.query("explain", "CREATE VIEW seen AS SELECT i + 1 AS j FROM told")
        before = coordinator.oracle.read_ts()
        await house.query("explain", "INSERT INTO told VALUES (2)")
        await house.query("explain", "CREATE INDEX seen_j ON seen (j)")
        (index,) = [each for each in coordinator.state.items() if each.name == "seen_j"]
        await until(lambda: coordinator.is_hydrated(index.id))
        assert coordinator.since(index.id) > before
        query = "SELECT j FROM seen WHERE j > 0"
        _, sources = await explained(house, query)
        assert sources == {"foreshore.public.seen_j"}
        past = f"{query} AS OF {before}"
        assert (await house.query("explain", past)).startswith("2\n")
        assert await explained(house, past) == (before, {"foreshore.public.told"})

    runner.run(scenario())
