"""Several writers of one shard: the end of one, and the shared upper of another."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from foreshore.clock import ManualClock
from foreshore.storage.shard import SharedUpper
from tests.storage.harness import ROWS, U1, open_at, put, run, write
from tests.storage.test_capabilities import LEASE_MS, A, pass_time


@pytest.mark.parametrize("how", ["expired", "dropped", "downgraded"])
def test_end_of_one_writer_does_not_block_others(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        controller = await open_at(tmp_path, clock=clock)
        _, written = await controller.create(U1, ROWS)
        shared = SharedUpper()
        controller.share_upper(U1, shared)
        shared.advance(5)
        lease = await controller.clone_capability(written, LEASE_MS)

        async def end() -> None:
            match how:
                case "expired":
                    pass_time(controller, clock, LEASE_MS)
                case "dropped":
                    await controller.drop_capability(lease)
                case _:
                    await controller.downgrade_capability(lease, 100)

        ending = asyncio.create_task(end())
        await asyncio.sleep(0)
        shared.advance(7)  # while its end is being made durable
        assert controller.upper(U1) == 7
        await put(controller, replace(write(U1, 7, 9, (A, 8, 1)), token=written.token))
        await ending
        await controller.close()

    run(main)
