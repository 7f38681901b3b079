"""Numbers of sequences: drawn, set forwards, begun again; what they become, and what goes with them.

Each setval and each RESTART goes to a *band* of numbers of its own, beyond all before and wider than
what is ever drawn. So no number may ever come twice, and the bands are the values of a register:
who sets it writes, who draws a number reads. It must be linearizable, and so must each band.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from math import inf
from typing import Any

import asyncpg

from tests.history.checker import Anomaly
from tests.history.workloads import Attempt, Workload

BAND = 1_000_000
SHARED = ("counter", "entry_id_seq")
UNDEFINED_TABLE = "42P01"
UNIQUE_VIOLATION = "23505"


@dataclass(slots=True)
class History:
    """What one sequence has given out, and when it began a band."""

    name: str
    given: list[tuple[int, Attempt]] = field(default_factory=list)
    begun: dict[int, Attempt] = field(default_factory=dict)

    def another(self) -> tuple[int, Attempt]:
        """Return where the next band begins, and the attempt to go there."""
        attempt = Attempt()
        self.begun[len(self.begun) + 1] = attempt
        return len(self.begun) * BAND, attempt

    def gave(self, numbers: list[int], attempt: Attempt) -> None:
        """Take note of numbers; they count if the attempt turns out to be possible."""
        self.given += [(number, attempt) for number in numbers]

    def anomalies(self) -> list[Anomaly]:
        """Return what is wrong with the numbers."""
        given = [(number, attempt) for number, attempt in self.given if attempt.possible]
        bands: dict[int, list[tuple[int, Attempt]]] = {band: [] for band in self.begun}
        for number, attempt in given:
            bands.setdefault(number // BAND, []).append((number, attempt))
        return [
            *self._twice(given),
            *(found for band in bands.values() for found in self._disorder(band)),
            *self._cycles({band: [each[1] for each in own] for band, own in bands.items()}),
        ]

    def _twice(self, given: list[tuple[int, Attempt]]) -> list[Anomaly]:
        count = Counter(number for number, _ in given)
        return [
            Anomaly("a number given out twice", (f"{self.name}: {number}",))
            for number, times in count.items()
            if times > 1
        ]

    def _disorder(self, given: list[tuple[int, Attempt]]) -> list[Anomaly]:
        by_end = sorted(given, key=lambda each: each[1].end)
        ends = [attempt.end for _, attempt in by_end]
        greatest = list(accumulate((number for number, _ in by_end), max))
        found = []
        for number, attempt in given:
            before = bisect_left(ends, attempt.begin)
            if before and greatest[before - 1] >= number:
                story = (f"{self.name}: {number} after {greatest[before - 1]}",)
                found.append(Anomaly("a number given out after a greater one", story))
        return found

    def _cycles(self, draws: dict[int, list[Attempt]]) -> list[Anomaly]:
        """Find bands of which one must be both before and after another (Gibbons and Korach)."""
        found: list[Anomaly] = []
        forward: list[tuple[int, float, float]] = []
        backward: list[tuple[int, float, float]] = []
        for band, own in draws.items():
            if band:
                begun = self.begun.get(band)
                if begun is None or not begun.possible:
                    if own:
                        story = (f"{self.name}: {band}",)
                        found.append(Anomaly("a number of a RESTART that was not", story))
                    continue
                own = [begun, *own]
            if own:
                first, last = min(each.end for each in own), max(each.begin for each in own)
                zones = forward if first < last else backward
                zones.append((band, min(first, last), max(first, last)))
        overlaps = [
            (a, b) for a, b in combinations(forward, 2) if max(a[1], b[1]) < min(a[2], b[2])
        ] + [(a, b) for a in forward for b in backward if a[1] < b[1] and b[2] < a[2]]
        return [
            *found,
            *(Anomaly("bands before and after", (self.name, f"{a}", f"{b}")) for a, b in overlaps),
        ]


@dataclass(slots=True)
class Restarted:
    """A sequence that begins again at 1 whenever its table is truncated."""

    given: list[tuple[int, Attempt]] = field(default_factory=list)
    truncated: list[Attempt] = field(default_factory=list)

    def anomalies(self) -> list[Anomaly]:
        """Find numbers that cannot be explained by a TRUNCATE between them."""
        found = []
        possible = [each for each in self.given if each[1].possible]
        for one, other in combinations(possible, 2):
            (a, first), (b, then) = sorted((one, other), key=lambda each: each[1].begin)
            if (b == a or (b < a and first.end < then.begin)) and not any(
                each.possible and each.begin < then.end and each.end > first.begin
                for each in self.truncated
            ):
                found.append(Anomaly("no TRUNCATE between two numbers", (f"{a}, {b}",)))
        return found


@dataclass(slots=True)
class Made:
    """A table that is created, and may be dropped."""

    name: str
    created: Attempt
    numbers: History
    drops: list[Attempt] = field(default_factory=list)

    @property
    def sure(self) -> bool:
        """Whether it is there."""
        return self.created.end < inf and not any(each.possible for each in self.drops)

    @property
    def gone(self) -> bool:
        """Whether it is not."""
        return not self.created.possible or any(each.end < inf for each in self.drops)


class Numbers(Workload):
    """Sequences alone, behind a key, restarted with their table, and come and gone with one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.wrong: list[Anomaly] = []
        self.shared = {name: History(name) for name in SHARED}
        self.page = Restarted()
        self.made: list[Made] = []
        # The number of each row by what identifies it, for each INSERT.
        self.entries: list[tuple[Attempt, dict[tuple[int, int], int]]] = []
        self.pages: list[tuple[Attempt, dict[tuple[int, int], int]]] = []
        self._tag = 0

    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Create the sequence and the tables."""
        await connection.execute("CREATE SEQUENCE counter")
        columns = "tag int NOT NULL, nth int NOT NULL"
        await connection.execute(f"CREATE TABLE entry (id bigserial PRIMARY KEY, {columns})")
        await connection.execute(f"CREATE TABLE page (id serial, {columns})")
        await self.views(connection, "entry", "tag, nth, id", "tag")

    async def step(self, connection: asyncpg.Connection, number: int) -> None:
        """Draw numbers, insert, look, set, restart, truncate, create or drop."""
        steps = (
            (6, self._draw_or_insert),
            (6, self._block),
            (2, self._look_at_any),
            (1, self._set),
            (3, self._restart),
            (3, self._page),
            (3, self._serial_table),
        )
        weights, ways = zip(*steps, strict=True)
        (way,) = self.choose.choices(ways, weights)
        await way(connection)

    # --- a sequence, and a table whose key comes from one ------------------------------------

    async def _draw_or_insert(self, connection: asyncpg.Connection) -> None:
        if self.choose.randrange(2):
            await self._draw(connection, self.choose.choice(SHARED))
        else:
            attempt = Attempt()
            with attempt.sent():
                await self._insert(connection, attempt)

    async def _block(self, connection: asyncpg.Connection) -> None:
        attempt = Attempt()
        await connection.execute("BEGIN")
        if self.choose.randrange(2):
            await self._look(connection, self.source("entry"))
        for _ in range(self.choose.randrange(1, 4)):
            await self._pause()
            if self.choose.randrange(2):
                await self._draw(connection, self.choose.choice(SHARED))
            else:
                await self._insert(connection, attempt)
        await self._end(connection, attempt)

    async def _draw(self, connection: asyncpg.Connection, name: str) -> None:
        attempt = Attempt()
        with attempt.sent():
            numbers = await self._numbers(connection, name)
        self.shared[name].gave(numbers, attempt)

    async def _numbers(self, connection: asyncpg.Connection, name: str) -> list[int]:
        query = f"SELECT nextval('{name}') FROM generate_series(1, {self._count()})"
        return sorted(row[0] for row in await connection.fetch(query))

    async def _insert(self, connection: asyncpg.Connection, attempt: Attempt) -> list[int]:
        """Insert rows as a part of `attempt`; their numbers are given out whatever its end."""
        drawn = Attempt()
        with drawn.sent():
            rows = await self._inserted(connection, "entry")
        self.entries.append((attempt, rows))
        self.shared["entry_id_seq"].gave(list(rows.values()), drawn)
        return sorted(rows.values())

    async def _inserted(
        self, connection: asyncpg.Connection, table: str
    ) -> dict[tuple[int, int], int]:
        self._tag += 1
        tag, count = self._tag, self._count()
        query = f"INSERT INTO {table} (tag, nth) SELECT {tag}, n FROM generate_series(1, {count}) n"
        if count == 1:
            query = f"INSERT INTO {table} (tag, nth) VALUES ({tag}, 1)"
        try:
            rows = await connection.fetch(f"{query} RETURNING tag, nth, id")
        except asyncpg.PostgresError as error:
            if error.sqlstate == UNIQUE_VIOLATION:
                self.wrong.append(Anomaly("a key given out twice", (f"{table}: {error}",)))
            raise
        return {(row[0], row[1]): row[2] for row in rows}

    async def _set(self, connection: asyncpg.Connection) -> None:
        name = self.choose.choice(SHARED)
        start, attempt = self.shared[name].another()
        with attempt.sent():
            await connection.fetchval(f"SELECT setval('{name}', {start})")

    async def _restart(self, connection: asyncpg.Connection) -> None:
        name = self.choose.choice(SHARED)
        start, attempt = self.shared[name].another()
        alter = f"ALTER SEQUENCE {name} RESTART WITH {start}"
        if self.choose.randrange(2):
            with attempt.sent():
                await connection.execute(alter)
            return
        await connection.execute("BEGIN")
        if self.choose.randrange(2):
            await self._draw(connection, name)
        await self._pause()
        await connection.execute(alter)
        await self._pause()
        numbers: list[int] = []
        if self.choose.randrange(2):
            numbers = await self._numbers(connection, name)
            self.shared[name].gave(numbers, attempt)
            self._own(name, numbers, start)
        await self._end(connection, attempt)

    def _own(self, name: str, numbers: list[int], start: int) -> None:
        """Check the numbers that a block draws first from what it has begun itself."""
        if numbers != list(range(start, start + len(numbers))):
            story = (f"{name}: {numbers}, not from {start}",)
            self.wrong.append(Anomaly("not the numbers of the own RESTART", story))

    async def _look_at_any(self, connection: asyncpg.Connection) -> None:
        await self._look(connection, self.source("entry"))

    async def _look(self, connection: asyncpg.Connection, source: str) -> None:
        begin = asyncio.get_running_loop().time()
        rows = await connection.fetch(f"SELECT tag, nth, id FROM {source}")
        there = Counter((row[0], row[1], row[2]) for row in rows)
        wrong = [f"{row} {times} times" for row, times in there.items() if times > 1]
        for attempt, inserted in self.entries:
            for (tag, nth), id in inserted.items():
                seen = there.pop((tag, nth, id), 0)
                if seen and not attempt.possible:
                    wrong.append(f"{(tag, nth, id)} was not committed")
                if not seen and attempt.end < begin:
                    wrong.append(f"{(tag, nth, id)} is not there")
        known = {key[0] for _, inserted in self.entries for key in inserted}
        wrong += [f"{row} has another number" for row in there if row[0] in known]
        if wrong:
            self.wrong.append(Anomaly("rows of INSERTs", (source, *wrong[:5])))

    # --- a table that is truncated -----------------------------------------------------------

    async def _page(self, connection: asyncpg.Connection) -> None:
        attempt = Attempt()
        truncate = "TRUNCATE page RESTART IDENTITY"
        kind = self.choose.randrange(6)
        if kind < 3:
            with attempt.sent():
                rows = await self._inserted(connection, "page")
            self.pages.append((attempt, rows))
            self.page.given += [(number, attempt) for number in rows.values()]
        elif kind == 3:
            self.page.truncated.append(attempt)
            with attempt.sent():
                await connection.execute(truncate)
        elif kind == 4:
            self.page.truncated.append(attempt)
            await connection.execute("BEGIN")
            await connection.execute(truncate)
            rows = await self._inserted(connection, "page")
            self.pages.append((attempt, rows))
            self.page.given += [(number, attempt) for number in rows.values()]
            self._own("page", sorted(rows.values()), 1)
            await self._pause()
            await self._end(connection, attempt)
        else:
            await self._read_pages(connection)

    async def _read_pages(self, connection: asyncpg.Connection) -> None:
        read = Attempt()
        with read.sent():
            rows = await connection.fetch("SELECT tag, nth, id FROM page")
        there = {(row[0], row[1]): row[2] for row in rows}
        wrong = []
        twice = [id for id, n in Counter(row[2] for row in rows).items() if n > 1]
        if twice:
            wrong.append(f"numbers twice: {twice[:5]}")
        for attempt, inserted in self.pages:
            after = [
                each
                for each in self.page.truncated
                if each.possible and each.end > attempt.begin and each is not attempt
            ]
            for key, id in inserted.items():
                seen = there.pop(key, None)
                if seen is None and attempt.end < read.begin and not after:
                    wrong.append(f"{key} is not there")
                if seen is not None and seen != id:
                    wrong.append(f"{key} has {seen}, not {id}")
                if seen is not None and not attempt.possible:
                    wrong.append(f"{key} was not committed")
                if seen is not None and any(
                    attempt.end < each.begin and each.end < read.begin for each in after
                ):
                    wrong.append(f"{key} was truncated")
        if wrong:
            self.wrong.append(Anomaly("rows of a truncated table", tuple(wrong[:5])))

    # --- tables that come and go -------------------------------------------------------------

    async def _serial_table(self, connection: asyncpg.Connection) -> None:
        alive = [each for each in self.made if not each.gone]
        if not alive or not self.choose.randrange(3):
            await self._make(connection)
            return
        made = self.choose.choice(alive)
        try:
            if self.choose.randrange(3):
                await self._fill(connection, made, None)
            else:
                await self._unmake(connection, made)
        except asyncpg.PostgresError as error:
            if error.sqlstate != UNDEFINED_TABLE:
                raise
            if made.sure:
                self.wrong.append(Anomaly("a table has gone", (f"{made.name}: {error}",)))
            await connection.execute("ROLLBACK")

    async def _make(self, connection: asyncpg.Connection) -> None:
        name = f"made_{self._number}"
        made = Made(name, Attempt(), History(name))
        self.made.append(made)
        create = f"CREATE TABLE {name} (id serial, tag int NOT NULL, nth int NOT NULL)"
        if self.choose.randrange(2):
            with made.created.sent():
                await connection.execute(create)
            return
        await connection.execute("BEGIN")
        await connection.execute(create)
        await self._fill(connection, made, made.created)
        await self._end(connection, made.created)

    async def _fill(
        self, connection: asyncpg.Connection, made: Made, within: Attempt | None
    ) -> None:
        drawn = Attempt()
        with drawn.sent():
            rows = await self._inserted(connection, made.name)
        made.numbers.gave(list(rows.values()), within or drawn)
        if within is not None:
            self._own(made.name, sorted(rows.values()), 1)

    async def _unmake(self, connection: asyncpg.Connection, made: Made) -> None:
        attempt = Attempt()
        made.drops.append(attempt)
        if self.choose.randrange(2):
            with attempt.sent():
                await connection.execute(f"DROP TABLE {made.name}")
            return
        await connection.execute("BEGIN")
        await connection.execute(f"DROP TABLE {made.name}")
        await self._pause()
        await self._end(connection, attempt)

    # --- in common ---------------------------------------------------------------------------

    def _count(self) -> int:
        """Return how many numbers to take: mostly one, now and then more than there are ready."""
        return self.choose.choice((1, 1, 1, 3, 40))

    async def _pause(self) -> None:
        await asyncio.sleep(self.choose.choice((0.0, 0.0, 0.02)))

    async def _end(self, connection: asyncpg.Connection, attempt: Attempt) -> None:
        """Roll the block back, or commit it."""
        if self.choose.randrange(3) == 0:
            await connection.execute("ROLLBACK")
            return
        with attempt.sent():
            await connection.execute("COMMIT")

    async def finish(self, connection: asyncpg.Connection) -> None:
        """Read everything in all ways, and draw once more."""
        for suffix in self.sources:
            await self._look(connection, f"entry{suffix}")
        await self._read_pages(connection)
        for name in SHARED:
            await self._draw(connection, name)
        rows: list[Any] = await connection.fetch(
            "SELECT relname::text FROM pg_class WHERE relname LIKE 'made%'"
        )
        there = {row[0] for row in rows}
        for made in self.made:
            found = made.name in there
            if (made.sure and not found) or (made.gone and found):
                self.wrong.append(Anomaly("a table is there or not", (made.name, str(found))))
            if (f"{made.name}_id_seq" in there) != found:
                self.wrong.append(Anomaly("a sequence without its table", (made.name, str(found))))

    def anomalies(self) -> list[Anomaly]:
        """Return what is wrong with the history."""
        histories = [*self.shared.values(), *(each.numbers for each in self.made)]
        found = [anomaly for each in histories for anomaly in each.anomalies()]
        return [*self.wrong, *found, *self.page.anomalies()]
