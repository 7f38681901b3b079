"""Durable subscriptions: exact over disconnects, restarts and kills; the history that they hold."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from foreshore.catalog.durable import CATALOG_SHARD
from foreshore.errors import Fenced
from foreshore.ids import GlobalId
from foreshore.storage import backup
from tests.adapter.harness import TestEnvironment, until
from tests.adapter.subscribe.replay import Replay
from tests.adapter.subscribe.test_subscribe import COLUMNS, SOURCES, State, rows_of

T = GlobalId("u1")
LAG_MS = 50
TABLE = """
CREATE TABLE h (k int, v text);
CREATE VIEW counted AS SELECT v, count(*) AS n FROM h GROUP BY v;
CREATE INDEX ON counted (v);
CREATE MATERIALIZED VIEW kept AS SELECT k * 10 AS k, v FROM h
"""


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[TestEnvironment]:
    """An environment that forgets at once what nobody holds."""
    env = TestEnvironment(path, lag_ms=LAG_MS)
    await env.open()
    try:
        yield env
    finally:
        await env.close()


async def killed(env: TestEnvironment) -> None:
    """Open another environment over the data while this one goes on: it can write nothing more."""
    environment, storage = env.environment, env.storage
    env.sessions.clear()
    await env.open()
    for closing in (environment.close(), storage.close()):
        with suppress(Fenced):
            await closing


class Consumer:
    """A client that keeps what it got together with the time before which it has all."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.of = SOURCES[source][2]
        self.width = COLUMNS[source]
        self.saved: tuple[State, int] = (Counter(), 0)
        self.replay = Replay(None, self.width)
        self.connected = False
        self.connections = 0

    async def connect(self, env: TestEnvironment) -> None:
        """Go on from what is saved, which may be more than was confirmed."""
        rows, frontier = self.saved
        if frontier:
            await env.ran(self.name, f"ALTER SUBSCRIPTION {self.name} ADVANCE TO {frontier}")
        self.replay = Replay(None, self.width)
        self.replay.rows, self.replay.frontier = rows.copy(), frontier
        await env.ran(
            self.name,
            f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION {self.name} WITH (PROGRESS)",
        )
        self.connected = True
        self.connections += 1

    async def take(self, env: TestEnvironment, are: Callable[[int], list[State]]) -> None:
        """Take what is there; at each frontier it has to be the collection."""
        answer = await env.ran(self.name, "FETCH ALL c WITH (TIMEOUT = '30ms')")
        for row in rows_of(answer):
            self.replay.take([row])
            if row[1] and self.replay.began:
                frontier = self.replay.frontier
                wanted = [self.of(state) for state in are(frontier - 1)]
                assert self.replay.rows in wanted, (self.name, frontier, self.replay.rows, wanted)

    def save(self) -> None:
        if self.replay.began:
            self.saved = (self.replay.complete.copy(), self.replay.frontier)

    async def confirm(self, env: TestEnvironment) -> None:
        if self.saved[1]:
            await env.ran(
                "confirming", f"ALTER SUBSCRIPTION {self.name} ADVANCE TO {self.saved[1]}"
            )

    async def disconnect(self, env: TestEnvironment) -> None:
        await env.ran(self.name, "ROLLBACK")
        self.connected = False


def test_disconnects_and_restarts_give_each_change_once(tmp_path: Path) -> None:
    random_ = random.Random(11)

    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", TABLE)
            state: dict[int, str] = {}
            states: list[tuple[int, int, State]] = [(0, 0, Counter())]

            async def write() -> None:
                sql = []
                for _ in range(random_.randint(1, 3)):
                    k, v = random_.randint(1, 7), random_.choice("xyz")
                    if k not in state:
                        sql.append(f"INSERT INTO h VALUES ({k}, '{v}')")
                        state[k] = v
                    elif random_.random() < 0.4:
                        sql.append(f"DELETE FROM h WHERE k = {k}")
                        del state[k]
                    else:
                        sql.append(f"UPDATE h SET v = '{v}' WHERE k = {k}")
                        state[k] = v
                before = env.environment.coordinator.oracle.read_ts()
                await env.ran("w", "; ".join(sql))
                after = env.environment.coordinator.oracle.read_ts()
                states.append((before, after, Counter(state.items())))

            def are(time: int) -> list[State]:
                """Return what the table may have held: of a time amid a write it is not known."""
                last = next(i for i in reversed(range(len(states))) if states[i][1] <= time)
                amid = last + 1 < len(states) and states[last + 1][0] < time
                return [each[2] for each in states[last : last + 1 + amid]]

            await write()
            consumers = []
            for source, (text, *_) in SOURCES.items():
                await env.ran("w", f"CREATE SUBSCRIPTION {source}_s FOR {text}")
                consumers.append(Consumer(f"{source}_s", source))
                await write()
            turns = ["go on"] * 6 + ["reopen", "go on", "kill", "go on", "go on"]
            for turn in turns:
                if turn != "go on":
                    await (TestEnvironment.reopen if turn == "reopen" else killed)(env)
                    for consumer in consumers:
                        consumer.connected = False
                for consumer in consumers:
                    chance = random_.random()
                    if not consumer.connected:
                        if chance < 0.7:
                            await consumer.connect(env)
                        continue
                    await consumer.take(env, are)
                    if chance < 0.6:
                        consumer.save()
                    if chance < 0.4:
                        await consumer.confirm(env)
                    if 0.3 < chance < 0.8:
                        await consumer.disconnect(env)
                    await write()
                await env.environment.coordinator.allow_compaction()
            last = states[-1][1]
            for consumer in consumers:
                if not consumer.connected:
                    await consumer.connect(env)
                async with asyncio.timeout(30):
                    while not (consumer.replay.began and consumer.replay.frontier > last):
                        await consumer.take(env, are)
                assert consumer.replay.complete == consumer.of(states[-1][2])
                assert consumer.connections > 1
                await consumer.disconnect(env)

    asyncio.run(main())


async def since(env: TestEnvironment, id: GlobalId = T) -> int:
    """Let go what may be let go; return from when on a collection can be read in storage."""
    await env.environment.coordinator.group.advance()
    await env.environment.coordinator.allow_compaction()
    return env.storage.since(id)


async def position(env: TestEnvironment, name: str = "s") -> int:
    answer = await env.ran(
        "p", f"SELECT position FROM mz_catalog.mz_subscriptions WHERE name = '{name}'"
    )
    return int(answer.splitlines()[0])


async def aged(env: TestEnvironment) -> int:
    """Wait until what is there now is older than what all keep; return the time of then."""
    oracle = env.environment.coordinator.oracle
    now = oracle.read_ts()
    await until(lambda: oracle.read_ts() > now + 2 * LAG_MS)
    return now


def test_position_holds_history_from_there_on_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", "CREATE TABLE t (i int)")
            await env.ran("w", "CREATE SUBSCRIPTION s FOR t")
            began = await position(env)
            held = f"durable subscription|{began}|u2|NULL"
            for leave in (None, TestEnvironment.reopen, killed):
                if leave is not None:
                    await leave(env)
                await aged(env)
                await env.ran("w", "INSERT INTO t VALUES (1)")
                assert await since(env) == began
                answer = await env.ran(
                    "r",
                    "SELECT kind, time, subscription_id, connection_id FROM mz_internal.mz_read_holds"
                    " WHERE object_name = 't' AND kind LIKE '%subscription'",
                )
                assert answer.splitlines()[0] == held
            behind = await env.ran(
                "r", "SELECT name, behind_ms >= 300 FROM mz_catalog.mz_subscriptions"
            )
            assert behind.splitlines()[0] == "s|t"

            to = await aged(env)
            await env.ran("w", f"ALTER SUBSCRIPTION s ADVANCE TO {to}")
            assert await position(env) == to
            shown = (await env.ran("r", "SHOW SUBSCRIPTIONS LIKE 's'")).splitlines()[0]
            assert shown.startswith(f"s|{to}|")
            await aged(env)
            assert await since(env) == to - 1
            for leave in (killed, TestEnvironment.reopen):
                await leave(env)
                await aged(env)
                assert await position(env) == to
                assert await since(env) == to - 1
            await env.ran("w", "DROP SUBSCRIPTION s")
            while await since(env) < to:  # then the table rests, perhaps at a time before the DROP
                await aged(env)

            await env.ran("w", "CREATE SUBSCRIPTION s FOR t; DROP TABLE t CASCADE")
            shown = await env.query("r", "SELECT count(*) FROM mz_catalog.mz_subscriptions")
            assert shown.splitlines()[0] == "0"

    asyncio.run(main())


def test_advance_moves_forward_without_a_catalog_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            coordinator = env.environment.coordinator
            await env.ran("w", "CREATE TABLE t (i int); CREATE SUBSCRIPTION s FOR t")
            began = await position(env)
            back = await env.query("w", f"ALTER SUBSCRIPTION s ADVANCE TO {began - 1}")
            assert back.splitlines()[0] == (
                f'ERROR 22023: cannot move subscription "s" back to {began - 1}'
            )
            await env.ran("w", f"ALTER SUBSCRIPTION s ADVANCE TO {began}")
            far = coordinator.clock.now() + 60_000
            beyond = await env.query("w", f"ALTER SUBSCRIPTION s ADVANCE TO {far}")
            assert beyond.startswith(f'ERROR 22023: cannot move subscription "s" to {far}\nDETAIL')
            assert await position(env) == began

            version, basis = coordinator.state, (await env.session("w")).planner.basis()
            for _ in range(20):
                await env.ran("w", "ALTER SUBSCRIPTION s ADVANCE TO mz_now()")
                await since(env)
            assert coordinator.state is version
            assert (await env.session("w")).planner.basis() == basis
            assert coordinator.capabilities[CATALOG_SHARD][0].frontier > began
            assert await position(env) > began + 1

    asyncio.run(main())


@pytest.mark.parametrize("query", ["SELECT i FROM t", "SELECT max(i) AS i FROM t GROUP BY i"])
def test_snapshot_option_overrides_what_the_position_begins_with(
    tmp_path: Path, query: str
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            oracle = env.environment.coordinator.oracle
            await env.ran("w", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)")
            await env.ran("w", f"CREATE SUBSCRIPTION s FOR ({query})")
            began = await position(env)
            await env.ran("w", "INSERT INTO t VALUES (2)")
            await env.ran("w", "DELETE FROM t WHERE i = 1")
            end = oracle.read_ts() + 1

            async def told(options: str = "") -> list[str]:
                stream = f"SUBSCRIBE TO SUBSCRIPTION s {options} UP TO {end}"
                *rows, tag = (await env.ran("r", stream)).splitlines()
                assert tag == f"SUBSCRIBE {len(rows)}"
                return rows

            contents = [f"{began}|1|1"]
            changes = [row for row in await told("WITH (SNAPSHOT = false)")]
            assert [row.split("|")[1:] for row in changes] == [["1", "2"], ["-1", "1"]]
            assert await told() == contents + changes
            assert await told() == contents + changes, "nothing was confirmed"
            progress = await told("WITH (PROGRESS)")
            assert progress[0] == f"{began}|t|NULL|NULL"
            await env.ran("w", f"ALTER SUBSCRIPTION s ADVANCE TO {began}")
            assert await told() == contents + changes, "of nothing nothing is confirmed"

            await env.ran("w", f"ALTER SUBSCRIPTION s ADVANCE TO {began + 1}")
            assert await told() == changes
            progress = await told("WITH (PROGRESS)")
            assert progress[0] == f"{began + 1}|t|NULL|NULL", "it can be confirmed again"
            assert await told("WITH (SNAPSHOT)") == contents + changes
            second = int(changes[0].split("|")[0])
            await env.ran("w", f"ALTER SUBSCRIPTION s ADVANCE TO {second}")
            assert await told() == changes, "what happens at the position comes"
            await env.ran("w", f"ALTER SUBSCRIPTION s ADVANCE TO {second + 1}")
            assert await told() == changes[1:]
            upsert = await told("ENVELOPE UPSERT (KEY (i))")
            assert [row.split("|")[1:] for row in upsert] == [["delete", "1"]]
            copied = await env.query(
                "r", f"COPY (SUBSCRIBE TO SUBSCRIPTION public.s UP TO {end}) TO STDOUT"
            )
            assert copied.splitlines()[:-1] == changes[1:]

    asyncio.run(main())


@pytest.mark.parametrize(
    "alteration",
    [
        "ADD COLUMN b int",
        "DROP COLUMN b",
        "ADD PRIMARY KEY (a)",
        "ALTER COLUMN a SET NOT NULL",
        "ADD CHECK (a > 0)",
    ],
)
async def test_alter_of_subscribed_table_that_ends_history_is_refused(
    env: TestEnvironment, alteration: str
) -> None:
    await env.ran(
        "w",
        "CREATE TABLE t (a int, c int, b int); CREATE VIEW v AS SELECT a FROM t;"
        " CREATE MATERIALIZED VIEW m AS SELECT a FROM t; CREATE SUBSCRIPTION above FOR m",
    )
    coordinator = env.environment.coordinator
    views = [item for item in coordinator.state.items() if item.name == "m"]
    await until(lambda: coordinator.is_hydrated(views[0].id))
    if alteration.startswith("ADD COLUMN"):
        await env.ran("w", "ALTER TABLE t DROP COLUMN b")
    await env.ran("w", "CREATE SUBSCRIPTION s FOR v")
    assert (await env.query("w", f"ALTER TABLE t {alteration}")).splitlines() == [
        "ERROR 2BP01: cannot alter table t because other objects depend on it",
        "DETAIL: subscription s depends on table t",
        "HINT: Its history ends with this change: drop the subscription first, and create it anew.",
    ]
    await env.ran("w", "INSERT INTO t (a) VALUES (1)")
    await env.ran("w", "DROP SUBSCRIPTION s")
    if not alteration.startswith(("ADD PRIMARY", "ALTER COLUMN")):  # those need m dropped
        await env.ran("w", f"ALTER TABLE t {alteration}")
        await env.ran("w", "INSERT INTO t (a) VALUES (2)")
        end = coordinator.oracle.read_ts() + 1
        told = await env.ran("w", f"SUBSCRIBE TO SUBSCRIPTION above UP TO {end}")
        assert [row.split("|")[1:] for row in told.splitlines()[:-1]] == [
            ["1", "1"],
            ["1", "2"],
        ]
    await env.ran("w", "DROP TABLE t CASCADE")


def test_rename_column_leaves_name_in_subscription(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", "CREATE TABLE t (a int); CREATE SUBSCRIPTION s FOR t")
            await env.ran("w", "INSERT INTO t VALUES (1)")
            await env.ran("w", "ALTER TABLE t RENAME COLUMN a TO b; ALTER TABLE t RENAME TO u")
            await env.ran("w", "INSERT INTO u (b) VALUES (2)")
            await env.reopen()
            shown = await env.ran("w", "SHOW CREATE SUBSCRIPTION s")
            assert shown.splitlines()[0] == (
                "foreshore.public.s|CREATE SUBSCRIPTION foreshore.public.s FOR "
                "(SELECT * FROM (SELECT b AS a FROM foreshore.public.u) AS t)"
            )
            end = env.environment.coordinator.oracle.read_ts() + 1
            told = await env.ran(
                "w", f"SUBSCRIBE SUBSCRIPTION s ENVELOPE UPSERT (KEY (a)) UP TO {end}"
            )
            assert [row.split("|")[1:] for row in told.splitlines()[:-1]] == [
                ["upsert", "1"],
                ["upsert", "2"],
            ]

    asyncio.run(main())


def test_create_subscription_begins_at_commit(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", "CREATE TABLE t (a int)")
            await env.ran("w", "CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
            await env.ran(
                "w",
                "BEGIN; INSERT INTO t VALUES (1); CREATE TABLE n (a int);"
                " INSERT INTO n VALUES (7); CREATE SUBSCRIPTION on_n FOR n;"
                " CREATE SUBSCRIPTION on_m FOR m",
            )
            unknown = await env.query("r", "SUBSCRIBE TO SUBSCRIPTION on_n")
            assert unknown.startswith('ERROR 42704: subscription "on_n" does not exist')
            await env.ran("w", "COMMIT")
            assert await position(env, "on_n") == await position(env, "on_m")
            await aged(env)
            await since(env)
            await killed(env)  # the next environment holds the same, be the view ever so late
            view, now = GlobalId("u2"), env.environment.coordinator.oracle.read_ts()
            assert await since(env, view) <= await position(env, "on_m")
            await until(lambda: env.storage.upper(view) > now + 2 * LAG_MS)
            assert await since(env, view) == await position(env, "on_m")
            end = env.environment.coordinator.oracle.read_ts() + 1
            for name, value in (("on_n", "7"), ("on_m", "1")):
                told = await env.ran("r", f"SUBSCRIBE TO SUBSCRIPTION {name} UP TO {end}")
                assert told.splitlines()[0].split("|")[1:] == ["1", value]
            await env.ran("w", "BEGIN; CREATE SUBSCRIPTION never FOR t; ROLLBACK")
            assert "42704" in await env.query("w", "DROP SUBSCRIPTION never")

    asyncio.run(main())


def test_backup_contains_positions_with_their_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are copied later than the states: what is let go meanwhile is later, too."""
    looked, moved = threading.Event(), threading.Event()
    copy = backup._copy_once

    def copy_later(*args: Any) -> backup.Backup:
        looked.set()
        moved.wait(30)
        return copy(*args)

    monkeypatch.setattr(backup, "_copy_once", copy_later)

    async def main() -> None:
        place, restored = tmp_path / "backup", tmp_path / "restored"
        async with opened(tmp_path / "data") as env:
            await env.ran("w", "CREATE TABLE t (i int); CREATE SUBSCRIPTION s FOR t")
            await env.ran("w", "INSERT INTO t VALUES (1)")
            first = await position(env)
            copying = asyncio.create_task(asyncio.to_thread(backup.back_up, env.data_dir, place))
            await until(looked.is_set)
            to = await aged(env) + 1
            await env.ran("w", f"ALTER SUBSCRIPTION s ADVANCE TO {to}")
            await aged(env)
            assert await since(env) == to - 1 > first
            await env.ran("w", "INSERT INTO t VALUES (2)")
            moved.set()
            await copying
        await asyncio.to_thread(backup.restore, place, restored)
        async with opened(restored) as env:
            assert await position(env) == first
            end = env.environment.coordinator.oracle.read_ts() + 1
            told = await env.ran("r", f"SUBSCRIBE TO SUBSCRIPTION s UP TO {end}")
            assert [row.split("|")[1:] for row in told.splitlines()[:-1]] == [["1", "1"]]

    asyncio.run(main())


def test_lost_history_fails_instead_of_skipping_changes(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", "CREATE CLUSTER idle (SIZE = 'embedded', REPLICATION FACTOR = 0)")
            await env.ran(
                "w",
                "CREATE TABLE t (a int); CREATE MATERIALIZED VIEW m IN CLUSTER idle AS SELECT a FROM t;"
                " CREATE SUBSCRIPTION s FOR m",
            )
            at = await position(env)
            await env.ran("w", "INSERT INTO t VALUES (1)")  # at which the view will not be known
            await env.ran("w", "ALTER TABLE t ADD COLUMN b int")
            for leave in (None, TestEnvironment.reopen):
                if leave is not None:
                    await leave(env)
                for sql in (
                    "SUBSCRIBE TO SUBSCRIPTION s",
                    "ALTER SUBSCRIPTION s ADVANCE TO mz_now()",
                ):
                    error, detail, hint = (await env.query("w", sql)).splitlines()
                    assert error == 'ERROR 55000: subscription "s" cannot go on from its position'
                    assert detail.startswith(f"DETAIL: It is at {at}; ")
                    assert hint == "HINT: Drop the subscription and create it anew."
            await env.ran("w", "DROP SUBSCRIPTION s; CREATE SUBSCRIPTION s FOR m")
            await env.ran("w", "ALTER SUBSCRIPTION s ADVANCE TO mz_now()")

    asyncio.run(main())


@pytest.mark.parametrize("source", ["(SELECT 1 AS x)", "constant"])
def test_end_of_constant_source_can_be_confirmed(tmp_path: Path, source: str) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("w", "CREATE MATERIALIZED VIEW constant AS SELECT 1 AS x")
            await env.ran("w", "SELECT * FROM constant")
            await env.ran("w", f"CREATE SUBSCRIPTION s FOR {source}")
            for contents in ([1], []):
                for _ in range(2):
                    follow = "SUBSCRIBE TO SUBSCRIPTION s WITH (PROGRESS)"
                    rows = rows_of(await env.ran("r", follow))
                    assert [row[3] for row in rows if not row[1]] == contents
                    assert rows[0][0] == await position(env)
                    assert rows[-1][1]
                for row in rows:
                    if row[1]:
                        await env.ran("w", f"ALTER SUBSCRIPTION s ADVANCE TO {row[0]}")
                await aged(env)
                await killed(env)

    asyncio.run(main())


SWAPPED = "ALTER SUBSCRIPTION f RENAME TO f2; ALTER SUBSCRIPTION g RENAME TO f"


@pytest.mark.parametrize(
    ("others", "followed"),
    [
        ("ALTER SUBSCRIPTION f RENAME TO f2; CREATE SUBSCRIPTION f FOR u", True),
        ("ALTER SUBSCRIPTION f RENAME TO f2; CREATE SUBSCRIPTION f FOR u", False),
        ("DROP SUBSCRIPTION f; CREATE SUBSCRIPTION f FOR u", True),
        ("DROP SUBSCRIPTION f; CREATE SUBSCRIPTION f FOR u", False),
        (SWAPPED, True),
    ],
)
def test_advance_after_name_means_another_subscription_gives_40001(
    tmp_path: Path, others: str, followed: bool
) -> None:
    async def main() -> None:
        async with opened(tmp_path) as env:
            await env.ran("a", "CREATE TABLE t (x int); CREATE TABLE u (x int)")
            await env.ran("a", "CREATE SUBSCRIPTION f FOR t; CREATE SUBSCRIPTION g FOR u")
            await env.ran("a", "BEGIN")
            if followed:
                await env.ran("a", "DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION f")
                await env.ran("a", "FETCH ALL c WITH (TIMEOUT = '0.1s')")
            for statement in others.split("; "):
                await env.ran("b", statement)
            await env.ran("b", "INSERT INTO u VALUES (42)")
            time = env.environment.coordinator.oracle.read_ts()
            moved = await env.query("a", f"ALTER SUBSCRIPTION f ADVANCE TO {time}")
            assert "40001" in moved
            await env.ran("a", "ROLLBACK")
            await env.ran("a", f"ALTER SUBSCRIPTION f ADVANCE TO {time}")

    asyncio.run(main())
