"""Holders in other processes: a capability is three values, and presenting them is enough.

The processes below know nothing of storage. They store a capability as JSON, pass it on in a file,
and send it with their requests; the environment answers with rows or with an error.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foreshore.errors import DatabaseError
from foreshore.storage.capability import ExpiredCapability
from foreshore.storage.controller import ReadCapability, StorageController
from tests.stopped_process import stop_process
from tests.storage.harness import ROWS, U1, open_at, put, run, updates_of, write

LEASE_MS = 2_000

HOLDER = """
import json, os, sys, time

def ask(what, capability, **more):
    print(json.dumps({"what": what, "capability": capability, **more}), flush=True)
    return json.loads(sys.stdin.readline())

role, place = sys.argv[1:]
print("started", flush=True)
given = json.loads(sys.stdin.readline())
if role == "A":
    clone = ask("clone", given)["capability"]
    with open(place + ".new", "w") as file:
        json.dump(clone, file)
    os.rename(place + ".new", place)
    time.sleep(600)
else:
    with open(place) as file:
        capability = json.load(file)
    while "error" not in ask("heartbeat", capability):
        if "error" in ask("read", capability):
            break
        time.sleep(0.1)
"""

Answer = dict[str, Any]


class Office:
    """Answers the requests of holders, and records them."""

    def __init__(self, controller: StorageController) -> None:
        self.controller = controller
        self.answers: dict[str, list[Answer]] = {"A": [], "B": []}

    async def answer(self, what: str, capability: ReadCapability) -> Answer:
        match what:
            case "clone":
                return {"capability": asdict(await self.controller.clone_capability(capability))}
            case "heartbeat":
                self.controller.heartbeat([capability])
                return {}
            case _:
                snapshot = self.controller.snapshot(capability, capability.frontier)
                try:
                    rows = await snapshot.rows()
                finally:
                    snapshot.release()
                return {"rows": rows.to_pylist()}

    async def serve(self, role: str, holder: Process) -> None:
        assert holder.stdout is not None
        assert holder.stdin is not None
        while line := await holder.stdout.readline():
            asked = json.loads(line)
            try:
                answer = await self.answer(asked["what"], ReadCapability(**asked["capability"]))
            except DatabaseError as error:
                answer = {"error": error.message, "class": type(error).__name__}
            self.answers[role].append(answer)
            with suppress(ConnectionError):
                holder.stdin.write(json.dumps(answer).encode() + b"\n")
                await holder.stdin.drain()

    @asynccontextmanager
    async def holder(self, role: str, place: Path) -> AsyncIterator[Process]:
        """Start a holder, which waits for a signal to begin, as a lease is shorter than a start."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDER, role, str(place), stdin=PIPE, stdout=PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"started\n"
        serving = asyncio.create_task(self.serve(role, process))
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await serving


async def begin(holder: Process, given: ReadCapability | None = None) -> None:
    assert holder.stdin is not None
    holder.stdin.write(json.dumps(given and asdict(given)).encode() + b"\n")
    await holder.stdin.drain()


async def settled(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - time itself changes it
            await asyncio.sleep(0.02)


def test_clone_in_other_process_works_until_heartbeats_stop(tmp_path: Path) -> None:
    place = tmp_path / "capability.json"

    async def main() -> None:
        controller = await open_at(tmp_path / "data")
        own, _ = await controller.create(U1, ROWS)
        for time in range(100):  # one row at each time, in place of the one before
            gone = [((time - 1, "x"), time, -1)] if time else []
            await put(controller, write(U1, time, time + 1, *gone, ((time, "x"), time, 1)))
        own = await controller.downgrade_capability(own, 40)
        office = Office(controller)
        told = office.answers["B"]

        async with office.holder("B", place) as b:
            async with office.holder("A", place) as a:
                first = await controller.clone_capability(own, LEASE_MS)
                own = await controller.downgrade_capability(own, 90)
                await begin(a, first)
                await settled(place.exists)
            await begin(b)  # and A is dead
            expired = asyncio.get_running_loop().time() + 2 * LEASE_MS / 1000
            await settled(lambda: asyncio.get_running_loop().time() > expired)
            clone = ReadCapability(**json.loads(place.read_text()))
            held = [grant.token for grant in controller.grants(U1) if grant.mode == "read"]
            assert held == [own.token, clone.token]  # what A was given has expired
            assert controller.since(U1) == 40
            await controller.settle()
            seen = len(told)
            await settled(lambda: len(told) > seen + 4)  # over compaction, too
            assert "error" not in str(told)

            stop_process(b.pid)
            await settled(lambda: controller.since(U1) == 90)
            await controller.settle()
            assert not [each for each in told if "error" in each]
            os.kill(b.pid, signal.SIGCONT)
            assert await b.wait() == 0
        assert [each.get("class") for each in told if "error" in each] == [
            ExpiredCapability.__name__
        ]
        assert told[-1]["error"] == f'read capability "{clone.token}" on u1 has expired'
        read = Counter(json.dumps(each["rows"]) for each in told if "rows" in each)
        assert list(read) == [json.dumps([{"k": 40, "v": "x", "__diff": 1}])]  # never another one

        snapshot = controller.snapshot(own, 90)
        assert updates_of(snapshot.tail) == []  # all of it is in batches that begin at 90
        snapshot.release()
        await controller.close()

    run(main)
