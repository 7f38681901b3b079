"""CPU of batches of keyed writes: `python -m tests.bench.writes [rows] [--sizes ...]`.

A table of `rows` rows has a key of two columns. Each form of a statement changes batches of rows,
in turns with the others. Shown are milliseconds of CPU for a batch, of all threads of the server's
process, the median of some rounds; with `--replica` those of its replica as well. The clock is the
scheduler's, in nanoseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from tests.bench.freshness import serving

TABLE = """
    CREATE TABLE li (a int, b int, x int NOT NULL CHECK (x >= 0), t text NOT NULL,
        price numeric(15, 2), PRIMARY KEY (a, b))"""
ROWS = """
    INSERT INTO li SELECT i / 4, i % 4, i % 1000, 'row ' || i, i % 5000
        FROM generate_series(0, $1::int - 1) AS i"""
ROUNDS = {1: 60, 100: 20, 1_000: 10, 10_000: 4}

Batch = Sequence[tuple[int, int, int]]  # a, b, x
Arguments = tuple[Any, ...]


def columns(batch: Batch) -> list[list[int]]:
    """Return a batch as columns."""
    return [list(each) for each in zip(*batch, strict=True)]


def values(batch: Batch) -> str:
    """Return a batch as the text of VALUES."""
    return ", ".join(f"({a}, {b}, {x})" for a, b, x in batch)


def full_values(batch: Batch) -> str:
    """Return whole rows as the text of VALUES."""
    return ", ".join(f"({a}, {b}, {x}, 'new {x}', {x}.5)" for a, b, x in batch)


def parameters(batch: Batch, row: str) -> str:
    """Return as many rows as a batch has, in each of which ? is the next parameter."""
    parts = ", ".join([row] * len(batch)).split("?")
    return "".join(part + f"${i}" for i, part in enumerate(parts[:-1], 1)) + parts[-1]


def texts(batch: Batch) -> list[str]:
    """Return a text for each row."""
    return [f"new {x}" for _, _, x in batch]


# Each form makes of a batch the text of a statement, and its arguments. `old` keys exist.
OLD: dict[str, Callable[[Batch], tuple[str, Arguments]]] = {
    "UPDATE ... FROM unnest, 3 arrays": lambda batch: (
        "UPDATE li SET x = v.x FROM unnest($1::int[], $2::int[], $3::int[]) AS v (a, b, x)"
        " WHERE li.a = v.a AND li.b = v.b",
        tuple(columns(batch)),
    ),
    "UPDATE ... FROM (VALUES ...)": lambda batch: (
        f"UPDATE li SET x = v.x FROM (VALUES {values(batch)}) AS v (a, b, x)"
        " WHERE li.a = v.a AND li.b = v.b",
        (),
    ),
    "UPDATE ... WHERE a = ANY($1)": lambda batch: (
        "UPDATE li SET x = x + 1 WHERE a = ANY($1) AND b = 1",
        (columns(batch)[0],),
    ),
    "UPDATE ... WHERE (a, b) IN (...)": lambda batch: (
        "UPDATE li SET x = x + 1 WHERE (a, b) IN"
        f" ({', '.join(f'({a}, {b})' for a, b, _ in batch)})",
        (),
    ),
    "INSERT ... ON CONFLICT DO UPDATE": lambda batch: (
        "INSERT INTO li SELECT *, 'new', 0.5 FROM unnest($1::int[], $2::int[], $3::int[])"
        " ON CONFLICT (a, b) DO UPDATE SET x = excluded.x",
        tuple(columns(batch)),
    ),
    "INSERT ... VALUES ($1, ...) ON CONFLICT": lambda batch: (
        "INSERT INTO li VALUES "
        + parameters(batch, "(?, ?, ?, 'new', 0.5)")
        + " ON CONFLICT (a, b) DO UPDATE SET x = excluded.x",
        tuple(chain.from_iterable(batch)),
    ),
    "UPDATE ... FROM (VALUES ($1, ...))": lambda batch: (
        f"UPDATE li SET x = v.x FROM (VALUES {parameters(batch, '(?::int, ?::int, ?::int)')})"
        " AS v (a, b, x) WHERE li.a = v.a AND li.b = v.b",
        tuple(chain.from_iterable(batch)),
    ),
    "MERGE ... USING unnest, 3 arrays": lambda batch: (
        "MERGE INTO li USING unnest($1::int[], $2::int[], $3::int[]) AS v (a, b, x)"
        " ON li.a = v.a AND li.b = v.b WHEN MATCHED THEN UPDATE SET x = v.x",
        tuple(columns(batch)),
    ),
    "DELETE ... WHERE a = ANY($1)": lambda batch: (
        "DELETE FROM li WHERE a = ANY($1) AND b = 1",
        (columns(batch)[0],),
    ),
}
NEW: dict[str, Callable[[Batch], tuple[str, Arguments]]] = {
    "INSERT ... SELECT unnest, 4 arrays": lambda batch: (
        "INSERT INTO li SELECT *, 0.5 FROM unnest($1::int[], $2::int[], $3::int[], $4::text[])",
        (*columns(batch), texts(batch)),
    ),
    "INSERT ... VALUES": lambda batch: (f"INSERT INTO li VALUES {full_values(batch)}", ()),
}


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time of all live threads of some processes so far."""
    total = 0
    for pid in pids:
        for each in Path(f"/proc/{pid}/task").iterdir():
            total += int((each / "schedstat").read_text().split()[0])
    return total / 1e9


class Bench:
    """A server with the table, and a connection to it."""

    def __init__(self, pids: Sequence[int], connection: asyncpg.Connection, rows: int) -> None:
        self._pids = pids
        self._connection = connection
        self._rows = rows
        self._random = np.random.default_rng(1)
        self._next = rows  # the next new key

    async def measured(self, sql: str, arguments: Arguments) -> float:
        """Return the CPU milliseconds of a statement."""
        before = cpu_seconds(self._pids)
        await self._connection.execute(sql, *arguments)
        return 1e3 * (cpu_seconds(self._pids) - before)

    def old(self, count: int) -> Batch:
        """Return rows that exist, no two with the same `a`."""
        orders = self._random.choice(self._rows // 4, count, replace=False).tolist()
        new = self._random.integers(0, 1000, count).tolist()
        return [(a, 1, x) for a, x in zip(orders, new, strict=True)]

    def new(self, count: int) -> Batch:
        """Return rows that do not exist."""
        first, self._next = self._next, self._next + count
        return [(i, 7, i % 1000) for i in range(first, first + count)]

    async def restore(self, batch: Batch) -> None:
        """Insert rows of a batch that were deleted."""
        await self._connection.execute(
            "INSERT INTO li SELECT a, 1, 0, 'row', 0 FROM unnest($1::int[]) AS a"
            " ON CONFLICT DO NOTHING",
            columns(batch)[0],
        )

    async def round(self, count: int) -> dict[str, float]:
        """Return the CPU milliseconds of each form for a batch."""
        found = {}
        for name, form in OLD.items():
            batch = self.old(count)
            found[name] = await self.measured(*form(batch))
            if name.startswith("DELETE"):
                await self.restore(batch)
        for name, form in NEW.items():
            found[name] = await self.measured(*form(self.new(count)))
        return found

    async def executemany(self, count: int) -> dict[str, float]:
        """Return the CPU milliseconds of statements about one row each, in one pipeline."""
        before = cpu_seconds(self._pids)
        await self._connection.executemany(
            "UPDATE li SET x = $3 WHERE a = $1 AND b = $2", self.old(count)
        )
        between = cpu_seconds(self._pids)
        await self._connection.executemany(
            "INSERT INTO li VALUES ($1, $2, $3, 'new', 0.5)", self.new(count)
        )
        after = cpu_seconds(self._pids)
        return {
            "executemany of UPDATE": 1e3 * (between - before),
            "executemany of INSERT": 1e3 * (after - between),
        }


async def run(url: str, pids: Sequence[int], rows: int, sizes: Sequence[int]) -> None:
    """Print the figures."""
    connection = await asyncpg.connect(url)
    await connection.execute(TABLE)
    await connection.execute(ROWS, rows)
    bench = Bench(pids, connection, rows)
    found: dict[str, list[str]] = {}
    for count in sizes:
        rounds = []
        for number in range(ROUNDS[count] + 2):
            costs = await bench.round(count) | await bench.executemany(count)
            if number >= 2:
                rounds.append(costs)
        for name in rounds[0]:
            median = statistics.median(each[name] for each in rounds)
            found.setdefault(name, []).append(f"{median:8.2f}")
    print(f"| CPU (ms) | {' | '.join(f'{count:,} rows' for count in sizes)} |")
    for name, shown in found.items():
        print(f"| `{name}` | {' | '.join(shown)} |", flush=True)
    await connection.close()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="?", type=int, default=200_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(ROUNDS))
    parser.add_argument("--replica", action="store_true")
    options = parser.parse_args()
    with serving() as server:
        assert server.process is not None
        pids = [server.process.pid, *(server.children() if options.replica else ())]
        asyncio.run(run(server.url, pids, options.rows, options.sizes))


if __name__ == "__main__":
    main()
