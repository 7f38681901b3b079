"""Honest clients: each runs short statements in a loop and checks the answers.

    python -m tests.hostile.honest PORT PID CLIENTS

One client only reads; several also write, each a row of its own.

They need the objects of `prepare`. Each statement is a line of JSON on standard output: its kind,
when it began, how long it took beyond what the machine owed, and what was wrong with it. They end
when their standard input does.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import psycopg

from tests.loop_guard import reference
from tests.starvation import Starvation

ROWS = 1000
MACHINE = "machine"  # the kind of a sample that says how long `reference` takes
PAUSE_S = 0.01  # between two statements of one client
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One statement of an honest client; times in seconds, `began` of the monotonic clock."""

    kind: str
    began: float
    seconds: float
    wrong: str = ""


def prepare(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Create what the honest clients read and write, and a role `hostile` that may only log in."""
    connection.execute("CREATE TABLE honest_rows (k int PRIMARY KEY, v int)")
    connection.execute(f"INSERT INTO honest_rows SELECT i, i * 7 FROM generate_series(1, {ROWS}) i")
    connection.execute(
        "CREATE MATERIALIZED VIEW honest_view AS SELECT k, sum(v) AS v FROM honest_rows GROUP BY k"
    )
    connection.execute("CREATE INDEX ON honest_view (k)")
    connection.execute("CREATE TABLE honest_counts (k int PRIMARY KEY, v int)")
    connection.execute("INSERT INTO honest_counts SELECT i, 0 FROM generate_series(0, 99) i")
    connection.execute("CREATE ROLE hostile LOGIN")


def samples(lines: Iterable[str]) -> list[Sample]:
    """Return the samples that honest clients have written so far."""
    return [Sample(**json.loads(line)) for line in lines if line.endswith("\n")]


class Client:
    """One honest client."""

    def __init__(self, port: int, pid: int, number: int, *, writes: bool) -> None:
        self._url = f"postgres://foreshore@127.0.0.1:{port}/foreshore"
        self._pid = pid
        self._number = number
        self._writes = writes
        self._chance = random.Random(number)

    async def run(self) -> None:
        """Run statements until cancelled; a lost connection is written down, and made anew."""
        while True:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
                async with connection:
                    while True:
                        await self._round(connection)
            except (psycopg.Error, TimeoutError, OSError) as error:
                write(Sample("lost", time.monotonic(), 0.0, f"{type(error).__name__}: {error}"))
                await asyncio.sleep(0.5)

    async def _round(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        await self._expect(connection, "select", "SELECT 1", 1)
        key = self._chance.randint(1, ROWS)
        await self._expect(
            connection, "look-up", "SELECT v FROM honest_view WHERE k = %s", key * 7, key
        )
        async with self._measured("login"):
            await (await psycopg.AsyncConnection.connect(self._url)).close()
        if self._writes:
            await self._write(connection, self._number)
        else:
            write(Sample(MACHINE, time.monotonic(), reference()))

    async def _write(
        self, connection: psycopg.AsyncConnection[tuple[object, ...]], own: int
    ) -> None:
        async with self._measured("write") as wrong:
            cursor = await connection.execute("SELECT v FROM honest_counts WHERE k = %s", (own,))
            row = await cursor.fetchone()
            before = row[0] if row is not None else None
            cursor = await connection.execute(
                "UPDATE honest_counts SET v = v + 1 WHERE k = %s RETURNING v", (own,)
            )
            row = await cursor.fetchone()
            if not isinstance(before, int) or row != (before + 1,):
                wrong.append(f"{before} became {row}")

    async def _expect(
        self,
        connection: psycopg.AsyncConnection[tuple[object, ...]],
        kind: str,
        sql: str,
        answer: object,
        *args: object,
    ) -> None:
        async with self._measured(kind) as wrong:
            row = await (await connection.execute(sql.encode(), args or None)).fetchone()
            if row != (answer,):
                wrong.append(f"{sql}: {row} is not {answer}")

    @asynccontextmanager
    async def _measured(self, kind: str) -> AsyncIterator[list[str]]:
        """Write down the body, to which the list yielded adds what was wrong."""
        wrong: list[str] = []
        owed, began = Starvation(self._pid, of_loop=True), time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            yield wrong
        seconds = max(0.0, time.monotonic() - began - owed.seconds())
        write(Sample(kind, began, seconds, "; ".join(wrong)))
        await asyncio.sleep(PAUSE_S)


def write(sample: Sample) -> None:
    """Write a sample to standard output at once."""
    print(json.dumps(asdict(sample)), flush=True)


async def run(port: int, pid: int, clients: int) -> None:
    """Run honest clients until standard input ends."""
    every = [
        asyncio.create_task(Client(port, pid, number, writes=clients > 1).run())
        for number in range(clients)
    ]
    await asyncio.to_thread(sys.stdin.read)
    for each in every:
        each.cancel()
    await asyncio.gather(*every, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(run(*map(int, sys.argv[1:])))
