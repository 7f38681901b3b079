"""Positions of durable subscriptions: moved by many at once, and together with what is written."""

import asyncio
from pathlib import Path

import pytest

from foreshore.catalog.durable import CATALOG_SHARD
from tests.adapter.harness import Gate, House
from tests.adapter.subscribe.test_durable import aged, killed, opened, position, since
from tests.adapter.subscribe.test_subscribe import rows_of


def test_many_who_confirm_at_once_share_a_write(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as house:
            coordinator = house.environment.coordinator
            names = [f"s{i}" for i in range(20)]
            await house.ran("w", "CREATE TABLE t (i int)")
            await house.ran("w", "; ".join(f"CREATE SUBSCRIPTION {each} FOR t" for each in names))
            to, before = await aged(house), coordinator.group.groups

            async def confirm(name: str, less: int) -> None:
                sql = f"ALTER SUBSCRIPTION {name} ADVANCE TO {to - less}"
                await house.query(f"{name}.{less}", sql, alone=False)

            await asyncio.gather(
                *(confirm(name, less) for less in range(3) for name in names),
                house.query(
                    "w", "DROP SUBSCRIPTION s19; CREATE SUBSCRIPTION late FOR t", alone=False
                ),
            )
            assert coordinator.group.groups - before <= 6
            assert {await position(house, name) for name in names[:-1]} == {to}
            await killed(house)
            assert {await position(house, name) for name in names[:-1]} == {to}
            assert await position(house, "late") > to

    asyncio.run(main())


SETUP = """
CREATE TABLE t (i int); CREATE TABLE results (upto bigint, n int);
CREATE SUBSCRIPTION s FOR t; CREATE SUBSCRIPTION other FOR t
"""


async def results(house: House) -> list[int]:
    *rows, _ = (await house.ran("r", "SELECT upto FROM results ORDER BY 1")).splitlines()
    return list(map(int, rows))


def test_a_position_moves_with_the_rows_of_its_transaction_or_not_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as house:
            await house.ran("w", SETUP + "; DROP SUBSCRIPTION other")
            began = await position(house)
            await aged(house)
            to = await aged(house)
            step = f"INSERT INTO results VALUES ({to}, 1); ALTER SUBSCRIPTION s ADVANCE TO {to}"
            await house.ran("w", f"BEGIN; {step}")
            assert await position(house) == began, "nobody else sees it before it is committed"
            own = await house.ran("w", "SELECT position FROM mz_subscriptions WHERE name = 's'")
            assert own.splitlines()[0] == str(to)
            back = await house.query("w", f"ALTER SUBSCRIPTION s ADVANCE TO {to - 1}")
            assert back.startswith(f'ERROR 22023: cannot move subscription "s" back to {to - 1}')
            await house.ran("w", "ROLLBACK")
            assert (await results(house), await position(house)) == ([], began)

            failing = f"{step}; SELECT 1 / 0"  # several statements of a message are a transaction
            assert "ERROR 22012" in await house.query("w", failing)
            assert (await results(house), await position(house)) == ([], began)

            await house.ran("w", f"BEGIN; ALTER SUBSCRIPTION s ADVANCE TO {began + 1}")
            await house.ran("w", f"SAVEPOINT x; {step}; ROLLBACK TO x")
            own = await house.ran("w", "SELECT position FROM mz_subscriptions WHERE name = 's'")
            assert own.splitlines()[0] == str(began + 1)
            await house.ran("w", "COMMIT")
            assert (await results(house), await position(house)) == ([], began + 1)

            await house.ran("w", f"BEGIN; SAVEPOINT x; {step}; RELEASE x; COMMIT")
            assert (await results(house), await position(house)) == ([to], to)
            later = await aged(house)
            await house.ran("w", f"{step.replace(str(to), str(later))}")
            for leave in (None, killed):
                if leave is not None:
                    await leave(house)
                assert (await results(house), await position(house)) == ([to, later], later)
                assert await since(house) >= to, "what nobody has to take any more is let go"

    asyncio.run(main())


def test_of_two_who_move_a_subscription_one_hears_of_a_conflict(tmp_path: Path) -> None:
    conflict = "ERROR 40001: could not serialize access due to concurrent update"

    async def main() -> None:
        async with opened(tmp_path) as house:
            await house.ran("w", SETUP)
            for meanwhile in ("ADVANCE", "BEGIN", "nothing"):
                before, done = await position(house), await results(house)
                await aged(house)
                to = await aged(house)

                def step(upto: int) -> str:
                    return (
                        f"INSERT INTO results VALUES ({upto}, 1);"
                        f" ALTER SUBSCRIPTION s ADVANCE TO {upto}"
                    )

                await house.ran("a", "BEGIN")
                await house.ran("b", "BEGIN")
                await house.ran("a", step(to))
                if meanwhile == "ADVANCE":  # the other has moved it, and commits later
                    await house.ran("b", step(to + 1))
                    await house.ran("a", "COMMIT")
                    assert await house.query("b", "COMMIT") == conflict
                elif meanwhile == "BEGIN":  # the other has begun, and moves it later
                    await house.ran("a", "COMMIT")
                    assert (await house.query("b", step(to + 1))).startswith(
                        "INSERT 0 1\n" + conflict
                    )
                    await house.ran("b", "ROLLBACK")
                else:  # both commits are in one group
                    await house.ran("b", step(to + 1))
                    both = await asyncio.gather(
                        *(house.query(each, "COMMIT", alone=False) for each in "ab")
                    )
                    assert sorted(both) == ["COMMIT", conflict]
                    to = to if both[0] == "COMMIT" else to + 1
                assert (await results(house), await position(house)) == ([*done, to], to)
                assert to > before

            to = await aged(house)
            await house.ran("a", f"BEGIN; ALTER SUBSCRIPTION s ADVANCE TO {to}")
            await house.ran("b", f"BEGIN; ALTER SUBSCRIPTION other ADVANCE TO {to}")
            await house.ran("b", "COMMIT")
            await house.ran("a", "COMMIT")
            assert await position(house) == await position(house, "other") == to

    asyncio.run(main())


def test_a_transaction_that_follows_a_subscription_moves_it_from_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as house:
            await house.ran("w", SETUP)
            follow = "DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION s WITH (PROGRESS)"
            await house.ran("a", "BEGIN")
            await house.ran("b", f"ALTER SUBSCRIPTION s ADVANCE TO {await aged(house)}")
            await house.ran("a", follow)  # from where it has been moved meanwhile: that is well
            await house.ran("w", "INSERT INTO t VALUES (1)")
            found = rows_of(await house.ran("a", "FETCH 3 c"))
            to = max(int(row[0]) for row in found if row[1])
            sum_up = f"INSERT INTO results VALUES ({to}, {len(found)})"
            move = f"ALTER SUBSCRIPTION s ADVANCE TO {to}"
            await house.ran("a", f"{sum_up}; {move}; COMMIT")
            assert (await results(house), await position(house)) == ([to], to)

            await house.ran("a", f"BEGIN; {follow}; FETCH 1 c")
            await house.ran("b", f"ALTER SUBSCRIPTION s ADVANCE TO {await aged(house)}")
            late = await house.query("a", "ALTER SUBSCRIPTION s ADVANCE TO mz_now()")
            assert late.startswith("ERROR 40001")
            await house.ran("a", "ROLLBACK")

            at = await position(house)
            stale = await house.query(
                "a", f"ALTER SUBSCRIPTION s ADVANCE FROM {at - 1} TO {at + 1}"
            )
            assert stale.splitlines() == [
                f'ERROR 55000: cannot move subscription "s" from {at - 1}',
                f"DETAIL: It is at {at}.",
            ]
            await house.ran("a", f"ALTER SUBSCRIPTION s ADVANCE FROM {at} TO {at + 1}")
            assert await position(house) == at + 1

    asyncio.run(main())


def test_what_a_move_was_read_from_has_to_be_so_when_it_is_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as house:
            await house.ran("w", SETUP)
            at = await position(house)
            await house.ran("a", "BEGIN; SELECT count(*) FROM results")
            await house.ran("b", "INSERT INTO results VALUES (1, 1)")
            await house.ran("a", f"ALTER SUBSCRIPTION s ADVANCE TO {at + 1}")
            assert (await house.query("a", "COMMIT")).startswith("ERROR 40001")
            assert await position(house) == at

    asyncio.run(main())


def test_positions_and_changes_of_the_catalog_go_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as house:
            await house.ran("w", SETUP)
            to = await aged(house)
            await house.ran(
                "w",
                f"BEGIN; CREATE TABLE made (a int); ALTER SUBSCRIPTION s ADVANCE TO {to};"
                " ALTER SUBSCRIPTION other ADVANCE TO mz_now(); DROP SUBSCRIPTION other; COMMIT",
            )
            await house.ran("w", "SELECT * FROM made")
            await killed(house)
            assert await position(house) == to
            await house.ran("a", "BEGIN; ALTER SUBSCRIPTION s ADVANCE TO mz_now()")
            await house.ran("b", "DROP SUBSCRIPTION s")
            gone = await house.query("a", "COMMIT")
            assert gone == 'ERROR 42704: subscription "s" does not exist'
            new = "BEGIN; CREATE SUBSCRIPTION n FOR t; ALTER SUBSCRIPTION n ADVANCE TO mz_now()"
            assert 'ERROR 55000: subscription "n" has not begun' in await house.query("a", new)
            await house.query("a", "ROLLBACK")
            updates = await house.storage.snapshot(
                house.environment.coordinator.capabilities[CATALOG_SHARD][0],
                house.environment.coordinator.oracle.read_ts(),
            ).contents()
            assert "position" not in updates.column("collection").to_pylist()

    asyncio.run(main())


def test_who_moves_a_subscription_that_is_dropped_meanwhile_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as house:
            await house.ran("w", SETUP)
            to = await aged(house)
            waits = Gate(monkeypatch, house.environment.coordinator.group, "reached")
            moving = asyncio.create_task(
                house.query("a", f"ALTER SUBSCRIPTION s ADVANCE TO {to}", alone=False)
            )
            await waits.reached.wait()
            await house.ran("w", "DROP SUBSCRIPTION s")
            waits.open()
            assert await moving == 'ERROR 42704: subscription "s" does not exist'

    asyncio.run(main())
