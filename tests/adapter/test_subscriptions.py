"""Positions of durable subscriptions: what many who move theirs at once cost and get."""

import asyncio
from pathlib import Path

from tests.adapter.test_durable import aged, killed, opened, position, ran


def test_many_who_confirm_at_once_share_a_write(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as house:
            coordinator = house.environment.coordinator
            names = [f"s{i}" for i in range(20)]
            await ran(house, "w", "CREATE TABLE t (i int)")
            await ran(house, "w", "; ".join(f"CREATE SUBSCRIPTION {each} FOR t" for each in names))
            to, before = await aged(house), coordinator.group.writes

            async def confirm(name: str, less: int) -> None:
                sql = f"ALTER SUBSCRIPTION {name} ADVANCE TO {to - less}"
                await house.query(f"{name}.{less}", sql, alone=False)

            await asyncio.gather(
                *(confirm(name, less) for less in range(3) for name in names),
                house.query(
                    "w", "DROP SUBSCRIPTION s19; CREATE SUBSCRIPTION late FOR t", alone=False
                ),
            )
            assert coordinator.group.writes - before <= 6
            assert {await position(house, name) for name in names[:-1]} == {to}
            await killed(house)
            assert {await position(house, name) for name in names[:-1]} == {to}
            assert await position(house, "late") > to

    asyncio.run(main())
