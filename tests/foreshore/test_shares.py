"""An owner has at most its share at a time, and all owners together the total."""

import asyncio
from collections import Counter

from foreshore.shares import Shares


def test_one_owner_leaves_places_for_others() -> None:
    async def main() -> None:
        shares, has, end = Shares(3, 4), Counter[str](), asyncio.Event()

        async def use(owner: str) -> None:
            async with shares.share(owner):
                has[owner] += 1
                await end.wait()
                has[owner] -= 1

        async def settle() -> None:
            for _ in range(10):
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(use("a")) for _ in range(6)]
        await settle()
        assert has == {"a": 3}
        tasks += [asyncio.create_task(use("b")) for _ in range(2)]
        await settle()
        assert has == {"a": 3, "b": 1}
        end.set()
        await asyncio.gather(*tasks)
        assert has.total() == 0
        assert shares.is_unused

    asyncio.run(main())


def test_who_gives_up_waiting_takes_no_place() -> None:
    async def main() -> None:
        shares, end = Shares(1, 2), asyncio.Event()

        async def use(owner: str) -> None:
            async with shares.share(owner):
                await end.wait()

        first, second = (asyncio.create_task(use("a")) for _ in range(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        end.set()
        await asyncio.wait([first, second])
        async with asyncio.timeout(5), shares.share("a"), shares.share("b"):
            assert not shares.is_unused
        assert shares.is_unused

    asyncio.run(main())
