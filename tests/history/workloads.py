"""Workloads whose histories can be checked: register, list-append, bank, long fork.

Each client has a connection of its own and remembers when it sent a transaction and when it heard
of its end. What was refused did not happen; where the connection broke before an answer it may
have, and the transaction is kept with an open end if there was anything to commit. Everything is
read now from the table, now from an indexed view, now from a materialized view.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

import asyncpg

from tests.history.checker import Anomaly, Appends, Key, Transaction, anomalies, versions_of

# What says that a transaction did not happen, and may be tried again.
REFUSED = ("40001", "40P01", "23505", "23514", "53100")
GONE = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)
# What a connection says as the server goes down under it: nothing is known of what it was doing.
GOING = ("57P01", "57P03", "58030", "08006", "08003")


class Workload(ABC):
    """One kind of transactions over tables of its own."""

    sources: ClassVar[tuple[str, ...]] = ("", "_view", "_mv")

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.done = 0  # transactions whose end is known
        self._progress = asyncio.Event()
        self._number = 0

    async def reach(self, done: int) -> None:
        """Wait until so many transactions are done."""
        while self.done < done:
            self._progress.clear()
            await self._progress.wait()

    @abstractmethod
    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Create what there is."""

    @abstractmethod
    async def step(self, connection: asyncpg.Connection, number: int) -> None:
        """Run one transaction and record it."""

    @abstractmethod
    async def finish(self, connection: asyncpg.Connection) -> None:
        """Read everything once more, when all clients are done."""

    @abstractmethod
    def anomalies(self) -> list[Anomaly]:
        """Return what is wrong with the history."""

    def source(self, table: str) -> str:
        """Return the table, or a view of it."""
        return table + self.choose.choice(self.sources)

    async def views(
        self, connection: asyncpg.Connection, table: str, columns: str, key: str
    ) -> None:
        """Create the views through which a table is read too."""
        query = f"SELECT {columns} FROM {table}"
        await connection.execute(f"CREATE VIEW {table}_view AS {query}")
        await connection.execute(f"CREATE INDEX ON {table}_view ({key})")
        await connection.execute(f"CREATE MATERIALIZED VIEW {table}_mv AS {query}")

    async def client(self, connect: Callable[[], Awaitable[Any]], until: asyncio.Event) -> None:
        """Run transactions until told to end; connect again whenever the connection is lost."""
        while not until.is_set():
            try:
                connection = await connect()
            except (*GONE, asyncpg.PostgresError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            with suppress(*GONE):
                while not until.is_set():
                    self._number += 1
                    try:
                        await self.step(connection, self._number)
                        self.done += 1
                        self._progress.set()
                    except asyncpg.PostgresError as error:
                        if error.sqlstate in GOING:
                            break
                        if error.sqlstate not in REFUSED:
                            raise
                        with suppress(*GONE):
                            await connection.execute("ROLLBACK")
            connection.terminate()


class Attempt:
    """Whether a transaction may have happened: from when its end is sent until it is refused."""

    def __init__(self) -> None:
        self.begin = asyncio.get_running_loop().time()
        self.end = inf
        self.possible = False

    @contextmanager
    def sent(self) -> Iterator[None]:
        """Send in the body what commits, the COMMIT or a statement on its own, and hear of it."""
        self.possible = True
        try:
            yield
        except asyncpg.PostgresError as error:
            self.possible = error.sqlstate in GOING
            raise
        self.end = asyncio.get_running_loop().time()


@dataclass(slots=True)
class _Record:
    """What one transaction did, as far as its client knows; `tag` marks the versions it made."""

    name: str
    tag: int
    attempt: Attempt
    reads: dict[Key, int] = field(default_factory=dict)
    writes: dict[Key, tuple[int, int]] = field(default_factory=dict)


class _Versions(Workload):
    """Workloads whose rows carry a version and the tag of who made it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.records: list[_Record] = []
        self.wrong: list[Anomaly] = []
        self._made: dict[tuple[Key, int], int] = {}  # whose tag each version that was read has

    def record(self, name: str, tag: int = 0) -> _Record:
        """Begin to record a transaction; it counts if it turns out to be possible."""
        found = _Record(name, tag, Attempt())
        self.records.append(found)
        return found

    def saw(self, record: _Record, key: Key, version: int, tag: int) -> None:
        """Take note of what a transaction read."""
        if record.reads.setdefault(key, version) != version and key not in record.writes:
            self.wrong.append(
                Anomaly("unrepeatable read", (f"{record.name}: {key!r} at {version}",))
            )
        if version and self._made.setdefault((key, version), tag) != tag:
            self.wrong.append(
                Anomaly("two made one version", (f"{record.name}: {key!r} at {version}",))
            )

    async def change(
        self,
        connection: asyncpg.Connection,
        record: _Record,
        key: Key,
        statement: str,
        *args: object,
    ) -> None:
        """Make a version by a statement that tells its number and the tag of the one before.

        Without that tag nobody may ever have seen who made a version, if he himself never heard.
        """
        version, before = await connection.fetchrow(statement, *args)
        self.saw(record, key, version - 1, before)
        record.writes[key] = (version, version)

    def anomalies(self) -> list[Anomaly]:
        """Return what is wrong with the history.

        What may have happened did if one of its versions was read, and else may be left out.
        """
        by_tag: dict[int, dict[Key, tuple[int, int]]] = {}
        for (key, version), tag in self._made.items():
            by_tag.setdefault(tag, {})[key] = (version, version)
        history = []
        for each in self.records:
            seen = by_tag.get(each.tag, {}) if each.tag else {}
            if each.attempt.possible and (each.attempt.end < inf or seen):
                writes = {**each.writes, **seen}
                history.append(
                    Transaction(each.name, each.attempt.begin, each.attempt.end, each.reads, writes)
                )
        return [*self.wrong, *anomalies(history)]


class Register(_Versions):
    """Registers that count how often they were set, read and set alone or several at once."""

    KEYS = 12
    KEY = "NOT NULL"

    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Create the registers, at version 0."""
        await connection.execute(
            f"CREATE TABLE register (k int {self.KEY}, version int NOT NULL, tag int NOT NULL,"
            " before int NOT NULL)"
        )
        for key in range(self.KEYS):
            await connection.execute("INSERT INTO register VALUES ($1, 0, 0, 0)", key)
        await self.views(connection, "register", "k, version, tag", "k")

    async def step(self, connection: asyncpg.Connection, number: int) -> None:
        """Read all registers, or set one, or read some and perhaps set another."""
        record = self.record(f"T{number}", number)
        keys = self.choose.sample(range(self.KEYS), 3)
        kind = self.choose.randrange(4)
        if kind == 0:
            await self._read_all(connection, record, self.source("register"))
        elif kind == 1:
            with record.attempt.sent():
                await self._set(connection, keys[0], record)
        else:
            await connection.execute("BEGIN")
            for key in keys[: self.choose.randrange(3)]:
                query = f"SELECT k, version, tag FROM {self.source('register')} WHERE k = $1"
                self.saw(record, *await connection.fetchrow(query, key))
            if kind == 3:
                await self._set(connection, keys[2], record)
            with record.attempt.sent():
                await connection.execute("COMMIT")

    async def _read_all(self, connection: asyncpg.Connection, record: _Record, source: str) -> None:
        with record.attempt.sent():
            rows = await connection.fetch(f"SELECT k, version, tag FROM {source}")
        for row in rows:
            self.saw(record, *row)

    async def _set(self, connection: asyncpg.Connection, key: int, record: _Record) -> None:
        await self.change(
            connection,
            record,
            key,
            "UPDATE register SET version = version + 1, tag = $2, before = tag WHERE k = $1"
            " RETURNING version, before",
            key,
            record.tag,
        )

    async def finish(self, connection: asyncpg.Connection) -> None:
        """Read all registers in all ways."""
        for suffix in self.sources:
            source = f"register{suffix}"
            await self._read_all(connection, self.record(f"the last read of {source}"), source)


class KeyedRegister(Register):
    """The same by a primary key: some are locked by key, some read by key, some read whole."""

    KEY = "PRIMARY KEY"

    async def _set(self, connection: asyncpg.Connection, key: int, record: _Record) -> None:
        if self.choose.randrange(2):
            await super()._set(connection, key, record)
            return
        await self.change(
            connection,
            record,
            key,
            "INSERT INTO register VALUES ($1, 1, $2, 0) ON CONFLICT (k) DO UPDATE SET"
            " version = register.version + 1, tag = excluded.tag, before = register.tag"
            " RETURNING version, before",
            key,
            record.tag,
        )


class LockedRegister(Register):
    """Registers that are locked before they are read, and set to what follows from that."""

    KEY = "PRIMARY KEY"
    WHERE = ("k = $1 AND k < $2", "k BETWEEN $1 AND $2", "k IN ($1, $2)")
    SET = (
        "UPDATE register SET version = $2, tag = $3, before = $4 WHERE k = $1",
        "MERGE INTO register AS r USING (VALUES ($1::int, $2::int, $3::int, $4::int))"
        " AS s (k, version, tag, before) ON r.k = s.k"
        " WHEN MATCHED THEN UPDATE SET version = s.version, tag = s.tag, before = s.before",
    )

    async def step(self, connection: asyncpg.Connection, number: int) -> None:
        """Lock registers by key, by what they are, or those that are free; set some of them."""
        if not self.choose.randrange(4):
            await super().step(connection, number)
            return
        record = self.record(f"T{number}", number)
        await connection.execute("BEGIN")
        rows = await connection.fetch(
            f"SELECT k, version, tag FROM register WHERE {self.choose.choice(self.WHERE)}"
            f" ORDER BY k DESC LIMIT 2 FOR UPDATE{self.choose.choice(('', ' SKIP LOCKED'))}",
            *sorted(self.choose.sample(range(self.KEYS), 2)),
        )
        for key, version, tag in rows:
            self.saw(record, key, version, tag)
        for key, version, tag in rows[: self.choose.randrange(3)]:
            new = version + 1
            await connection.execute(self.choose.choice(self.SET), key, new, record.tag, tag)
            record.writes[key] = (new, new)
        with record.attempt.sent():
            await connection.execute("COMMIT")


class LongFork(_Versions):
    """Rows that are inserted once, and readers who must agree in which order that happened."""

    GROUP = 4

    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Create the table."""
        await connection.execute("CREATE TABLE fork (g int NOT NULL, k int NOT NULL)")
        await self.views(connection, "fork", "g, k", "g")
        self._next = 1

    async def step(self, connection: asyncpg.Connection, number: int) -> None:
        """Insert the next row, or read a group in one statement or in several."""
        kind = self.choose.randrange(3)
        recent = max(self._next - 1 - self.choose.randrange(2 * self.GROUP), 0) // self.GROUP
        keys = range(max(recent * self.GROUP, 1), (recent + 1) * self.GROUP)
        if kind == 0:
            key, self._next = self._next, self._next + 1
            record = self.record(f"T{number}", key)
            record.writes[key] = (1, 1)
            with record.attempt.sent():
                query = "INSERT INTO fork VALUES ($1, $2)"
                await connection.execute(query, key // self.GROUP, key)
            return
        record = self.record(f"T{number}")
        if kind == 1:
            with record.attempt.sent():
                query = f"SELECT k FROM {self.source('fork')} WHERE g = $1"
                there = [row[0] for row in await connection.fetch(query, recent)]
            for key in keys:
                self.saw(record, key, there.count(key), key)
        else:
            await connection.execute("BEGIN READ ONLY")
            for key in self.choose.sample(keys, len(keys)):
                query = f"SELECT count(*) FROM {self.source('fork')} WHERE g = $1 AND k = $2"
                self.saw(record, key, await connection.fetchval(query, recent, key), key)
            with record.attempt.sent():
                await connection.execute("COMMIT")

    async def finish(self, connection: asyncpg.Connection) -> None:
        """Read all rows in all ways."""
        for suffix in self.sources:
            record = self.record(f"the last read of fork{suffix}")
            with record.attempt.sent():
                rows = await connection.fetch(f"SELECT k, count(*) FROM fork{suffix} GROUP BY k")
            there = dict(rows)
            for key in range(1, self._next):
                self.saw(record, key, there.get(key, 0), key)


class Bank(_Versions):
    """Transfers between accounts; each account counts its changes, and all money stays."""

    ACCOUNTS = 8
    EACH = 100

    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Open the accounts."""
        await connection.execute(
            "CREATE TABLE account (id int PRIMARY KEY, version int NOT NULL, tag int NOT NULL,"
            " before int NOT NULL, balance int NOT NULL)"
        )
        for id in range(self.ACCOUNTS):
            await connection.execute("INSERT INTO account VALUES ($1, 0, 0, 0, $2)", id, self.EACH)
        await self.views(connection, "account", "id, version, tag, balance", "id")
        total = "SELECT sum(balance) AS n FROM account"
        await connection.execute(f"CREATE VIEW total_view AS {total}")
        await connection.execute("CREATE DEFAULT INDEX ON total_view")
        await connection.execute(f"CREATE MATERIALIZED VIEW total_mv AS {total}")

    async def step(self, connection: asyncpg.Connection, number: int) -> None:
        """Transfer, or look at all accounts and the total."""
        record = self.record(f"T{number}", number)
        await connection.execute("BEGIN")
        if self.choose.randrange(2):
            giver, taker = self.choose.sample(range(self.ACCOUNTS), 2)
            amount = self.choose.randrange(1, 20)
            for id, change in ((giver, -amount), (taker, amount)):
                await self.change(
                    connection,
                    record,
                    id,
                    "UPDATE account SET balance = balance + $2, version = version + 1, tag = $3,"
                    " before = tag WHERE id = $1 RETURNING version, before",
                    id,
                    change,
                    number,
                )
        else:
            await self._look(connection, record, self.source("account"))
            view = "total" + self.choose.choice(("_view", "_mv"))
            self._check(record, view, await connection.fetchval(f"SELECT n FROM {view}"))
        with record.attempt.sent():
            await connection.execute("COMMIT")

    async def _look(self, connection: asyncpg.Connection, record: _Record, source: str) -> None:
        rows = await connection.fetch(f"SELECT id, version, tag, balance FROM {source}")
        for id, version, tag, _ in rows:
            self.saw(record, id, version, tag)
        self._check(record, source, sum(row[3] for row in rows))

    def _check(self, record: _Record, source: str, total: int) -> None:
        if total != self.ACCOUNTS * self.EACH:
            story = (f"{record.name} saw {total} in {source}",)
            self.wrong.append(Anomaly("money made or lost", story))

    async def finish(self, connection: asyncpg.Connection) -> None:
        """Look at all accounts in all ways."""
        for suffix in self.sources:
            record = self.record(f"the last read of account{suffix}")
            with record.attempt.sent():
                await self._look(connection, record, f"account{suffix}")


class ListAppend(Workload):
    """Lists to which values are appended that are never used twice, and which are read whole.

    After some hundred transactions others take their place, so that none becomes long.
    """

    KEYS = 8  # at a time
    LASTING = 400  # transactions
    TIMES = 80

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.attempts: list[
            tuple[str, Attempt, dict[Key, tuple[int, ...]], dict[Key, tuple[int, ...]]]
        ] = []
        self.wrong: list[Anomaly] = []
        self._value = 0

    async def prepare(self, connection: asyncpg.Connection) -> None:
        """Create the lists, empty."""
        await connection.execute("CREATE TABLE list (k int NOT NULL, items int[] NOT NULL)")
        await connection.execute(
            "INSERT INTO list SELECT k, '{}' FROM generate_series(0, $1::int - 1) k",
            self.KEYS * self.TIMES,
        )
        await self.views(connection, "list", "k, items", "k")

    async def step(self, connection: asyncpg.Connection, number: int) -> None:
        """Read lists and append to lists, one to four times; own appends are seen."""
        name, attempt = f"T{number}", Attempt()
        first = number // self.LASTING % self.TIMES * self.KEYS
        read: dict[Key, tuple[int, ...]] = {}
        appended: dict[Key, tuple[int, ...]] = {}
        self.attempts.append((name, attempt, appended, read))
        await connection.execute("BEGIN")
        for _ in range(self.choose.randrange(1, 5)):
            key = first + self.choose.randrange(self.KEYS)
            own = appended.get(key, ())
            if self.choose.randrange(2):
                source = self.source("list")
                query = f"SELECT items FROM {source} WHERE k = $1"
                items = tuple(await connection.fetchval(query, key))
                cut = len(items) - len(own)
                if items[cut:] != own or read.setdefault(key, items[:cut]) != items[:cut]:
                    story = (f"{name} read {items} from {source} {key}", f"{own}, {read}")
                    self.wrong.append(Anomaly("own writes or reads not seen again", story))
            else:
                self._value += 1
                value = self._value
                query = "UPDATE list SET items = items || $2::int WHERE k = $1"
                status = await connection.execute(query, key, value)
                if status != "UPDATE 1":
                    self.wrong.append(Anomaly(status, (f"{name} at {key}",)))
                appended[key] = (*own, value)
        with attempt.sent():
            await connection.execute("COMMIT")

    async def finish(self, connection: asyncpg.Connection) -> None:
        """Read all lists in all ways."""
        for suffix in self.sources:
            attempt = Attempt()
            with attempt.sent():
                rows = await connection.fetch(f"SELECT k, items FROM list{suffix}")
            read = {key: tuple(items) for key, items in rows}
            self.attempts.append((f"the last read of list{suffix}", attempt, {}, read))

    def anomalies(self) -> list[Anomaly]:
        """Return what is wrong with the history."""
        transactions, found = versions_of(
            [
                Appends(name, attempt.begin, attempt.end, appended, read)
                for name, attempt, appended, read in self.attempts
                if attempt.possible
            ]
        )
        return [*self.wrong, *found, *anomalies(transactions)]


WORKLOADS: dict[str, type[Workload]] = {
    "register": Register,
    "keyed register": KeyedRegister,
    "locked register": LockedRegister,
    "list-append": ListAppend,
    "bank": Bank,
    "long fork": LongFork,
}
