"""mz_arrangement_sizes shows what each operator and each index keeps in memory."""

import asyncio
from collections.abc import Iterator

import pytest

from foreshore.compute.replica import reports
from tests.adapter.harness import TestEnvironment

SIZES = (
    "SELECT o.name, s.operator_id, s.name, s.records, s.batches > 0, s.size > 0"
    " FROM mz_introspection.mz_arrangement_sizes s JOIN mz_objects o ON o.id = s.object_id"
    " ORDER BY 1, 2 NULLS FIRST, 3"
)


@pytest.fixture(scope="module", autouse=True)
def reported_often() -> Iterator[None]:
    """Let replicas report periodically after fifty milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "STATUS_SECONDS", 0.05)
        yield


async def becomes(env: TestEnvironment, query: str, wanted: str) -> None:
    """Wait until a query gives `wanted`, as replicas report in their own time."""
    for _ in range(3_000):
        answer = await env.query("s", query)
        if answer == wanted:
            return
        await asyncio.sleep(0.01)
    assert answer == wanted


async def test_sizes_of_index_and_of_its_operator_follow_rows(env: TestEnvironment) -> None:
    await env.ran(
        "s",
        "CREATE TABLE sold (shop text, amount int)",
        "INSERT INTO sold VALUES ('a', 1), ('a', 2), ('b', 3)",
        "CREATE VIEW totals AS SELECT shop, sum(amount) FROM sold GROUP BY shop",
        "CREATE INDEX totals_by_shop ON totals (shop)",
    )
    await becomes(
        env,
        SIZES,
        "totals_by_shop|NULL|index|2|t|t\ntotals_by_shop|1|sums|2|t|t\nSELECT 2",
    )
    await env.ran("s", "INSERT INTO sold VALUES ('c', 1), ('d', 2)")
    await becomes(
        env,
        SIZES,
        "totals_by_shop|NULL|index|4|t|t\ntotals_by_shop|1|sums|4|t|t\nSELECT 2",
    )
    plan = await env.query(
        "s", "EXPLAIN PHYSICAL PLAN FOR SELECT shop, sum(amount) FROM sold GROUP BY shop"
    )
    assert "Operator 1: Reduce" in plan


async def test_strings_are_counted_once_for_replica(env: TestEnvironment) -> None:
    query = (
        "SELECT name, operator_id, records > 0, size > 0"
        " FROM mz_introspection.mz_arrangement_sizes WHERE object_id IS NULL"
    )
    await becomes(env, query, "strings|NULL|t|t\nSELECT 1")


async def test_dropped_index_has_no_sizes(env: TestEnvironment) -> None:
    await env.ran("s", "DROP INDEX IF EXISTS totals_by_shop")
    await becomes(
        env,
        "SELECT count(*) FROM mz_introspection.mz_arrangement_sizes WHERE object_id IS NOT NULL",
        "0\nSELECT 1",
    )


async def test_a_mirror_of_an_index_that_is_read_is_shown(env: TestEnvironment) -> None:
    await env.ran(
        "s",
        "CREATE TABLE bought (shop text, amount int)",
        "INSERT INTO bought VALUES ('a', 1), ('a', 2), ('b', 3)",
        "CREATE VIEW spent AS SELECT shop, sum(amount) FROM bought GROUP BY shop",
        "CREATE INDEX spent_by_shop ON spent (shop)",
    )
    mirrors = SIZES.replace("ORDER", "WHERE s.name = 'mirror' AND s.replica_id IS NULL ORDER")
    shown = "spent_by_shop|NULL|mirror|2|t|t\nSELECT 1"
    for _ in range(3_000):
        assert await env.query("s", "SELECT * FROM spent WHERE shop = 'b'") == "b|3\nSELECT 1"
        if (found := await env.query("s", mirrors)) == shown:
            break
        await asyncio.sleep(0.01)
    assert found == shown
    await env.ran("s", "DROP INDEX spent_by_shop")
    assert await env.query("s", mirrors) == "SELECT 0"
