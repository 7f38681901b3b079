"""Positions of durable subscriptions: concurrent moves, and moves together with writes."""

import asyncio
from pathlib import Path

import pytest

from foreshore.catalog.durable import CATALOG_SHARD
from tests.adapter.harness import Gate, TestEnvironment
from tests.adapter.subscribe.test_durable import aged, killed, opened, position, since
from tests.adapter.subscribe.test_subscribe import rows_of


def test_concurrent_advances_share_a_write(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            coordinator = env.environment.coordinator
            names = [f"s{i}" for i in range(20)]
            await env.ran("w", "CREATE TABLE t (i int)")
            await env.ran("w", "; ".join(f"CREATE SUBSCRIPTION {each} FOR t" for each in names))
            to, before = await aged(env), coordinator.group.groups

            async def confirm(name: str, less: int) -> None:
                sql = f"ALTER SUBSCRIPTION {name} ADVANCE TO {to - less}"
                await env.query(f"{name}.{less}", sql, alone=False)

            await asyncio.gather(
                *(confirm(name, less) for less in range(3) for name in names),
                env.query(
                    "w", "DROP SUBSCRIPTION s19; CREATE SUBSCRIPTION late FOR t", alone=False
                ),
            )
            assert coordinator.group.groups - before <= 6
            assert {await position(env, name) for name in names[:-1]} == {to}
            await killed(env)
            assert {await position(env, name) for name in names[:-1]} == {to}
            assert await position(env, "late") > to

    asyncio.run(main())


SETUP = """
CREATE TABLE t (i int); CREATE TABLE results (upto bigint, n int);
CREATE SUBSCRIPTION s FOR t; CREATE SUBSCRIPTION other FOR t
"""


async def results(env: TestEnvironment) -> list[int]:
    *rows, _ = (await env.ran("r", "SELECT upto FROM results ORDER BY 1")).splitlines()
    return list(map(int, rows))


def test_position_and_rows_of_transaction_commit_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", SETUP + "; DROP SUBSCRIPTION other")
            began = await position(env)
            await aged(env)
            to = await aged(env)
            step = f"INSERT INTO results VALUES ({to}, 1); ALTER SUBSCRIPTION s ADVANCE TO {to}"
            await env.ran("w", f"BEGIN; {step}")
            assert await position(env) == began, "nobody else sees it before it is committed"
            own = await env.ran("w", "SELECT position FROM mz_subscriptions WHERE name = 's'")
            assert own.splitlines()[0] == str(to)
            back = await env.query("w", f"ALTER SUBSCRIPTION s ADVANCE TO {to - 1}")
            assert back.startswith(f'ERROR 22023: cannot move subscription "s" back to {to - 1}')
            await env.ran("w", "ROLLBACK")
            assert (await results(env), await position(env)) == ([], began)

            failing = f"{step}; SELECT 1 / 0"  # several statements of a message are a transaction
            assert "ERROR 22012" in await env.query("w", failing)
            assert (await results(env), await position(env)) == ([], began)

            await env.ran("w", f"BEGIN; ALTER SUBSCRIPTION s ADVANCE TO {began + 1}")
            await env.ran("w", f"SAVEPOINT x; {step}; ROLLBACK TO x")
            own = await env.ran("w", "SELECT position FROM mz_subscriptions WHERE name = 's'")
            assert own.splitlines()[0] == str(began + 1)
            await env.ran("w", "COMMIT")
            assert (await results(env), await position(env)) == ([], began + 1)

            await env.ran("w", f"BEGIN; SAVEPOINT x; {step}; RELEASE x; COMMIT")
            assert (await results(env), await position(env)) == ([to], to)
            later = await aged(env)
            await env.ran("w", f"{step.replace(str(to), str(later))}")
            for leave in (None, killed):
                if leave is not None:
                    await leave(env)
                assert (await results(env), await position(env)) == ([to, later], later)
                assert await since(env) >= to, "what nobody has to take any more is let go"

    asyncio.run(main())


def test_two_transactions_moving_a_position_one_gets_40001(tmp_path: Path) -> None:
    conflict = "ERROR 40001: could not serialize access due to concurrent update"

    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", SETUP)
            for meanwhile in ("ADVANCE", "BEGIN", "nothing"):
                before, done = await position(env), await results(env)
                await aged(env)
                to = await aged(env)

                def step(upto: int) -> str:
                    return (
                        f"INSERT INTO results VALUES ({upto}, 1);"
                        f" ALTER SUBSCRIPTION s ADVANCE TO {upto}"
                    )

                await env.ran("a", "BEGIN")
                await env.ran("b", "BEGIN")
                await env.ran("a", step(to))
                if meanwhile == "ADVANCE":  # the other has moved it, and commits later
                    await env.ran("b", step(to + 1))
                    await env.ran("a", "COMMIT")
                    assert await env.query("b", "COMMIT") == conflict
                elif meanwhile == "BEGIN":  # the other has begun, and moves it later
                    await env.ran("a", "COMMIT")
                    assert (await env.query("b", step(to + 1))).startswith(
                        "INSERT 0 1\n" + conflict
                    )
                    await env.ran("b", "ROLLBACK")
                else:  # both commits are in one group
                    await env.ran("b", step(to + 1))
                    both = await asyncio.gather(
                        *(env.query(each, "COMMIT", alone=False) for each in "ab")
                    )
                    assert sorted(both) == ["COMMIT", conflict]
                    to = to if both[0] == "COMMIT" else to + 1
                assert (await results(env), await position(env)) == ([*done, to], to)
                assert to > before

            to = await aged(env)
            await env.ran("a", f"BEGIN; ALTER SUBSCRIPTION s ADVANCE TO {to}")
            await env.ran("b", f"BEGIN; ALTER SUBSCRIPTION other ADVANCE TO {to}")
            await env.ran("b", "COMMIT")
            await env.ran("a", "COMMIT")
            assert await position(env) == await position(env, "other") == to

    asyncio.run(main())


def test_advance_after_subscribe_moves_from_its_position(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", SETUP)
            follow = "DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION s WITH (PROGRESS)"
            await env.ran("a", "BEGIN")
            await env.ran("b", f"ALTER SUBSCRIPTION s ADVANCE TO {await aged(env)}")
            await env.ran("a", follow)  # from where it has been moved meanwhile: that is well
            await env.ran("w", "INSERT INTO t VALUES (1)")
            found = rows_of(await env.ran("a", "FETCH 3 c"))
            to = max(int(row[0]) for row in found if row[1])
            sum_up = f"INSERT INTO results VALUES ({to}, {len(found)})"
            move = f"ALTER SUBSCRIPTION s ADVANCE TO {to}"
            await env.ran("a", f"{sum_up}; {move}; COMMIT")
            assert (await results(env), await position(env)) == ([to], to)

            await env.ran("a", f"BEGIN; {follow}; FETCH 1 c")
            await env.ran("b", f"ALTER SUBSCRIPTION s ADVANCE TO {await aged(env)}")
            late = await env.query("a", "ALTER SUBSCRIPTION s ADVANCE TO mz_now()")
            assert late.startswith("ERROR 40001")
            await env.ran("a", "ROLLBACK")

            at = await position(env)
            stale = await env.query("a", f"ALTER SUBSCRIPTION s ADVANCE FROM {at - 1} TO {at + 1}")
            assert stale.splitlines() == [
                f'ERROR 55000: cannot move subscription "s" from {at - 1}',
                f"DETAIL: It is at {at}.",
            ]
            await env.ran("a", f"ALTER SUBSCRIPTION s ADVANCE FROM {at} TO {at + 1}")
            assert await position(env) == at + 1

    asyncio.run(main())


def test_advance_after_read_rows_changed_gives_40001(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", SETUP)
            at = await position(env)
            await env.ran("a", "BEGIN; SELECT count(*) FROM results")
            await env.ran("b", "INSERT INTO results VALUES (1, 1)")
            await env.ran("a", f"ALTER SUBSCRIPTION s ADVANCE TO {at + 1}")
            assert (await env.query("a", "COMMIT")).startswith("ERROR 40001")
            assert await position(env) == at

    asyncio.run(main())


def test_position_and_catalog_change_commit_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", SETUP)
            to = await aged(env)
            await env.ran(
                "w",
                f"BEGIN; CREATE TABLE made (a int); ALTER SUBSCRIPTION s ADVANCE TO {to};"
                " ALTER SUBSCRIPTION other ADVANCE TO mz_now(); DROP SUBSCRIPTION other; COMMIT",
            )
            await env.ran("w", "SELECT * FROM made")
            await killed(env)
            assert await position(env) == to
            await env.ran("a", "BEGIN; ALTER SUBSCRIPTION s ADVANCE TO mz_now()")
            await env.ran("b", "DROP SUBSCRIPTION s")
            gone = await env.query("a", "COMMIT")
            assert gone == 'ERROR 42704: subscription "s" does not exist'
            new = "BEGIN; CREATE SUBSCRIPTION n FOR t; ALTER SUBSCRIPTION n ADVANCE TO mz_now()"
            assert 'ERROR 55000: subscription "n" has not begun' in await env.query("a", new)
            await env.query("a", "ROLLBACK")
            updates = await env.storage.snapshot(
                env.environment.coordinator.capabilities[CATALOG_SHARD][0],
                env.environment.coordinator.oracle.read_ts(),
            ).contents()
            assert "position" not in updates.column("collection").to_pylist()

    asyncio.run(main())


def test_advance_of_subscription_dropped_meanwhile_gives_42704(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", SETUP)
            to = await aged(env)
            waits = Gate(monkeypatch, env.environment.coordinator.group, "reached")
            moving = asyncio.create_task(
                env.query("a", f"ALTER SUBSCRIPTION s ADVANCE TO {to}", alone=False)
            )
            await waits.reached.wait()
            await env.ran("w", "DROP SUBSCRIPTION s")
            waits.open()
            assert await moving == 'ERROR 42704: subscription "s" does not exist'

    asyncio.run(main())
