"""`foreshore demo --kill9`: kill the server under load, again and again, and count what is left.

Writers move money between accounts. Each transaction changes two balances and writes two lines into
a ledger, under a number of its own. A writer notes the number when its commit is acknowledged.
Meanwhile the server gets SIGKILL. After its restart the demo checks, at one time:

    nothing lost       each acknowledged transaction is in the ledger
    nothing invented   no transaction is there that was neither acknowledged nor under way
    all or nothing     each transaction has both of its lines, and the balances add up as before
    views              each view equals its query, computed by DuckDB from the tables' rows

Of a transaction that was under way at the kill nobody knows, until the check finds it or not.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

from foreshore.embedded.address import Address
from foreshore.embedded.database_async import AsyncDatabase
from foreshore.embedded.errors import NotReceived
from foreshore.embedded.server_process import ServerProcess
from foreshore.errors import Conflict, DatabaseError

Say = Callable[[str], None]

WRITERS = 8
ACCOUNTS, GROUPS = 200, 10
FIRST_BALANCE = 1_000
LOAD_SECONDS = (0.5, 2.5)  # from the start of the load to the kill, at random, or longer:
COMMITS = 20  # that are awaited before a kill
LONGEST_LOAD_S = 60.0  # the longest wait for them
SCHEMA = "kill9_demo"

TABLES = {
    "accounts": "id integer PRIMARY KEY, grp integer NOT NULL, balance bigint NOT NULL",
    "ledger": (
        "txn bigint NOT NULL, side integer NOT NULL, account integer NOT NULL,"
        " amount bigint NOT NULL, PRIMARY KEY (txn, side)"
    ),
}

# Queries that PostgreSQL's dialect and DuckDB's have in common.
VIEWS = {
    "balance_by_group": (
        "SELECT grp, count(*) AS accounts, CAST(sum(balance) AS bigint) AS balance,"
        " min(balance) AS least FROM accounts GROUP BY grp"
    ),
    "drift": (
        "SELECT a.id, a.balance, CAST(sum(l.amount) AS bigint) AS moved"
        " FROM accounts a JOIN ledger l ON l.account = a.id GROUP BY a.id, a.balance"
    ),
    "largest": (
        "SELECT txn, account, amount FROM ledger WHERE side = 2 ORDER BY amount DESC, txn LIMIT 20"
    ),
    "busiest": (
        "SELECT a.grp, l.account, count(*) AS lines FROM ledger l"
        " JOIN accounts a ON a.id = l.account GROUP BY a.grp, l.account HAVING count(*) > 3"
    ),
}
MATERIALIZED = ("balance_by_group", "drift")  # in shards of their own; the others have indexes


@dataclass
class Tally:
    """What the writers know of their transactions."""

    acknowledged: set[int] = field(default_factory=set)
    under_way: set[int] = field(default_factory=set)  # sent, and neither acknowledged nor refused
    refused: int = 0
    last: int = 0

    def next(self) -> int:
        """Return the number of a new transaction."""
        self.last += 1
        return self.last


@dataclass(frozen=True)
class Found:
    """What a check has found; all of it is empty if nothing is wrong."""

    lost: Sequence[int]
    invented: Sequence[int]
    torn: Sequence[int]
    missing_money: int
    views: Mapping[str, bool]  # whether each equals its query

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        wrong = self.lost or self.invented or self.torn or self.missing_money
        return not wrong and all(self.views.values())


def run_kill9(data_dir: Path, kills: int, say: Say, seed: int | None = None) -> int:
    """Run the demo in a directory; return the exit status: 0 if nothing was wrong."""
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    say(f"{kills} kills by SIGKILL under the load of {WRITERS} writers; seed {seed}")
    return asyncio.run(_run(data_dir, kills, say, random.Random(seed)))


async def _run(data_dir: Path, kills: int, say: Say, chance: random.Random) -> int:
    tally, wrong, checked = Tally(), 0, 0
    server = await _serve(data_dir)
    try:
        async with _client(data_dir) as database:
            await _create(database)
        say(f"  {', '.join(TABLES)}; views: {', '.join(VIEWS)}\n")
        for number in range(1, kills + 1):
            before = len(tally.acknowledged)
            seconds = await _load_and_kill(server, data_dir, tally, chance)
            sent = len(tally.acknowledged) - before
            began = time.monotonic()
            server = await _serve(data_dir)
            async with _client(data_dir) as database:
                found, durable = await _check(database, tally)
            back = time.monotonic() - began
            say(f"kill {number}: after {seconds:.1f} s and {sent:,} acknowledged commits")
            if sent < COMMITS:
                say(f"  this machine is slow: {COMMITS} had not come after {LONGEST_LOAD_S:.0f} s")
            checked += sent
            _report(found, tally, durable, back, say)
            tally.acknowledged |= durable
            tally.under_way.clear()
            wrong += not found.is_right
    finally:
        await asyncio.to_thread(server.close)
    total = len(tally.acknowledged)
    say(f"\n{kills} kills, {total:,} commits, {tally.refused:,} refused as conflicts")
    say(verdict(checked, wrong))
    return 0 if checked and not wrong else 1


def verdict(checked: int, wrong: int) -> str:
    """Return what has come out, of acknowledged commits and of kills after which it was wrong."""
    if wrong:
        return "THAT IS WRONG"
    if not checked:
        return "NOTHING WAS CHECKED: no commit was acknowledged before a kill"
    return f"of {checked:,} acknowledged commits nothing was lost, and every view equals its query"


async def _serve(data_dir: Path) -> ServerProcess:
    return await asyncio.to_thread(ServerProcess, data_dir, (), None)


def _client(data_dir: Path) -> AsyncDatabase:
    return AsyncDatabase(Address(directory=data_dir))


async def _create(database: AsyncDatabase) -> None:
    """Make tables and views, in place of those of an earlier demo."""
    await database.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    await database.execute(f"CREATE SCHEMA {SCHEMA}")
    await database.execute(f"SET search_path = {SCHEMA}")
    for name, columns in TABLES.items():
        await database.execute(f"CREATE TABLE {name} ({columns})")
    rows = range(ACCOUNTS)
    accounts = pa.table(
        {
            "id": pa.array(rows, pa.int32()),
            "grp": pa.array([each % GROUPS for each in rows], pa.int32()),
            "balance": pa.array([FIRST_BALANCE] * ACCOUNTS, pa.int64()),
        }
    )
    await database.register(f"{SCHEMA}.accounts", accounts, if_exists="append")
    for name, query in VIEWS.items():
        if name in MATERIALIZED:
            await database.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        else:
            await database.execute(f"CREATE VIEW {name} AS {query}")
            await database.execute(f"CREATE DEFAULT INDEX ON {name}")


async def _load_and_kill(
    server: ServerProcess, data_dir: Path, tally: Tally, chance: random.Random
) -> float:
    """Let the writers write, kill the server, and return after how many seconds."""
    chances = [random.Random(chance.random()) for _ in range(WRITERS)]
    writers = [asyncio.create_task(_write(data_dir, tally, each)) for each in chances]
    began = time.monotonic()
    await worked(writers, tally, chance.uniform(*LOAD_SECONDS))
    await asyncio.to_thread(server.kill)
    seconds = time.monotonic() - began
    await asyncio.gather(*writers)
    return seconds


async def worked(writers: Sequence[asyncio.Task[None]], tally: Tally, seconds: float) -> None:
    """Wait for `seconds`, and until COMMITS more are acknowledged, or can or should not be."""
    clock = asyncio.get_running_loop().time
    enough, longest = len(tally.acknowledged) + COMMITS, clock() + LONGEST_LOAD_S
    await asyncio.sleep(seconds)
    while len(tally.acknowledged) < enough and clock() < longest:
        if all(each.done() for each in writers):
            return  # with errors, which the caller finds
        await asyncio.sleep(0.02)


async def _write(data_dir: Path, tally: Tally, chance: random.Random) -> None:
    """Move money until the server is gone."""
    database = _client(data_dir)
    try:
        await database.execute(f"SET search_path = {SCHEMA}")
        while True:
            await _move(database, tally, chance)
    except NotReceived:
        pass  # the server is gone, as it should be
    finally:
        await database.close()


async def _move(database: AsyncDatabase, tally: Tally, chance: random.Random) -> None:
    """Run one transaction and note what came of it; raises NotReceived."""
    txn, amount = tally.next(), chance.randint(1, 100)
    source, target = chance.sample(range(ACCOUNTS), 2)
    tally.under_way.add(txn)
    try:
        async with database.transaction():
            change = "UPDATE accounts SET balance = balance + $1 WHERE id = $2"
            for account, by in sorted(((source, -amount), (target, amount))):
                await database.execute(change, [by, account])
            await database.execute(
                "INSERT INTO ledger VALUES ($1, 1, $2, $3), ($1, 2, $4, $5)",
                [txn, source, -amount, target, amount],
            )
    except DatabaseError as error:
        if isinstance(error, NotReceived) or error.sqlstate.startswith(("08", "57")):
            raise NotReceived(error.message) from error
        if not error.sqlstate.startswith(Conflict.sqlstate[:2]):
            raise
        tally.refused += 1
    else:
        tally.acknowledged.add(txn)
    tally.under_way.discard(txn)


async def _check(database: AsyncDatabase, tally: Tally) -> tuple[Found, set[int]]:
    """Compare what is there with what the writers know; also return what of `under_way` is there.

    All is read in one transaction, so at one time.
    """
    await database.execute(f"SET search_path = {SCHEMA}")
    async with database.transaction(isolation="serializable"):
        tables = {name: (await database.sql(f"TABLE {name}")).table for name in TABLES}
        views = {name: (await database.sql(f"TABLE {name}")).fetchall() for name in VIEWS}
    return await asyncio.to_thread(compare, tables, views, tally)


def compare(
    tables: Mapping[str, pa.Table], views: Mapping[str, Sequence[tuple[object, ...]]], tally: Tally
) -> tuple[Found, set[int]]:
    """Return what is wrong with tables and views, and which transactions under way are there."""
    lines = Counter(tables["ledger"].column("txn").to_pylist())
    there = set(lines)
    money = sum(tables["accounts"].column("balance").to_pylist())
    with duckdb.connect(":memory:") as own:
        for name, rows in tables.items():
            own.register(name, rows)
        equal = {
            name: Counter(own.execute(query).fetchall()) == Counter(views[name])
            for name, query in VIEWS.items()
        }
    found = Found(
        lost=sorted(tally.acknowledged - there),
        invented=sorted(there - tally.acknowledged - tally.under_way),
        torn=sorted(txn for txn, count in lines.items() if count != 2),
        missing_money=ACCOUNTS * FIRST_BALANCE - money,
        views=equal,
    )
    return found, there & tally.under_way


def _report(found: Found, tally: Tally, durable: set[int], back: float, say: Say) -> None:
    say(f"  back and checked in {back:.1f} s")
    say(f"  acknowledged and lost: {_listed(found.lost)}")
    say(f"  of {len(tally.under_way)} under way, {len(durable)} are there, whole")
    for what, wrong in (("nobody's", found.invented), ("torn", found.torn)):
        if wrong:
            say(f"  WRONG, transactions that are {what}: {_listed(wrong)}")
    if found.missing_money:
        say(f"  WRONG, the balances lack {found.missing_money}")
    for name, equal in found.views.items():
        say(f"  {name} {'equals its query' if equal else 'IS NOT what its query gives'}")


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{len(numbers)}" + (f" ({shown})" if shown else "")
