"""A writing process is killed repeatedly; acknowledged writes are complete."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from foreshore.storage.controller import Appended
from tests.storage.harness import ROWS, U1, U2, appended, open_at, reader

ROUNDS = 6


async def write_for_ever(directory: Path) -> None:
    """Append the same to two shards, several writers at once, and print acknowledged times."""
    controller = await open_at(directory, segment_records=20)
    for id in (U1, U2):
        if not controller.exists(id):
            await controller.create(id, ROWS)
    reads = [read for read, _ in (await controller.acquire_capabilities([U1, U2])).values()]
    next_time = controller.upper(U1)

    async def writer() -> None:
        nonlocal next_time, reads
        while True:
            time = next_time
            next_time += 1
            # A row that stays at every third time; else one that replaces the one before.
            updates = [((time, "stays"), time, 1)] if time % 3 == 0 else []
            updates.append(((-1, str(time)), time, 1))
            if time:
                updates.append(((-1, str(time - 1)), time, -1))
            writes = [appended(id, time, time + 1, updates) for id in (U1, U2)]
            assert await controller.append(writes) == Appended()
            print(time, flush=True)
            if time % 50 == 49:
                reads = [await controller.downgrade_capability(r, time - 10) for r in reads]

    print("ready", flush=True)
    await asyncio.gather(*(writer() for _ in range(4)))


async def check(directory: Path, acknowledged: int) -> int:
    controller = await open_at(directory)
    upper = controller.upper(U1)
    assert controller.upper(U2) == upper > acknowledged
    for id in (U1, U2):
        read = await reader(controller, id)
        for as_of in {upper - 1, max(read.frontier, upper - 5)}:
            snapshot = controller.snapshot(read, as_of)
            rows = (await snapshot.rows()).to_pylist()
            snapshot.release()
            assert all(row["__diff"] == 1 for row in rows)
            expected = {(time, "stays") for time in range(0, as_of + 1, 3)} | {(-1, str(as_of))}
            assert {(row["k"], row["v"]) for row in rows} == expected
    await controller.close()
    return upper


def test_killed_writer_loses_no_acknowledged_write(tmp_path: Path) -> None:
    pauses = random.Random(7)
    upper = 0
    for _ in range(ROUNDS):
        writer = subprocess.Popen(
            [sys.executable, "-P", __file__, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        acknowledged = -1
        for _ in range(pauses.randrange(1, 400)):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
        lines = rest.splitlines() if rest.endswith("\n") else rest.splitlines()[:-1]
        writer.wait()
        acknowledged = max([acknowledged, *map(int, lines)])
        now = asyncio.run(check(tmp_path, acknowledged))
        assert now >= upper
        upper = now
    assert upper > ROUNDS


if __name__ == "__main__":
    asyncio.run(write_for_ever(Path(sys.argv[1])))
