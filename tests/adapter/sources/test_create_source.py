"""CREATE SOURCE: its rows come once each, whatever ends in between, and it is shown everywhere."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from foreshore.adapter.environment import INGEST_COMMAND
from foreshore.errors import OutOfMemory
from foreshore.ids import GlobalId
from foreshore.processes.child_process import ProcessLauncher
from foreshore.processes.messages import Message
from foreshore.processes.transport import Tables
from foreshore.sources.generators import LoadGenerator
from foreshore.storage.external import retries
from foreshore.storage.ingest.connector import Batch, Durable, Kind, Position
from foreshore.storage.ingest.controller import Progressed
from foreshore.storage.ingest.messages import Ingested, StartSource
from foreshore.storage.ingest.source import Source
from foreshore.update import DIFF
from tests.adapter.harness import TestEnvironment

FAST = "LOAD GENERATOR COUNTER (TICK INTERVAL '1 ms')"
COUNTS = 'SELECT count(*), max(counter), (SELECT "offset" FROM s_progress) FROM s'
STATUS = "SELECT name, status, error FROM mz_internal.mz_source_statuses"


async def counted(env: TestEnvironment, least: int) -> None:
    """Wait until source `s` has at least so many rows: all numbers, and its position."""
    while True:
        rows, most, position = (await env.query("a", COUNTS)).splitlines()[0].split("|")
        if int(rows) >= least:
            assert rows == most == position
            return
        await asyncio.sleep(0.02)


async def test_each_tick_comes_once_over_kills_and_restarts(own_env: TestEnvironment) -> None:
    env = own_env
    assert await env.query("a", f"CREATE SOURCE s FROM {FAST}") == "CREATE SOURCE"
    await counted(env, 20)
    for round in range(1, 6):
        env.ingest.last.kill()
        await counted(env, 20 + 50 * round)
    await env.ran("a", "ALTER SOURCE s RENAME TO other", "ALTER SOURCE other RENAME TO s")
    await env.reopen()
    await counted(env, 400)
    assert await env.query("a", STATUS) == "s|running|NULL\nSELECT 1"
    moved = "SELECT updates_committed > 0 FROM mz_internal.mz_source_statistics"
    async with asyncio.timeout(60):  # reports come by the second
        while await env.query("a", moved) != "t\nSELECT 1":  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_source_that_ends_has_all_its_rows(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", f"CREATE SOURCE s FROM {FAST[:-1]}, UP TO 7)")
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT sum(counter) FROM s")
    await counted(env, 7)
    assert await env.query("a", "SELECT * FROM v") == "28\nSELECT 1"
    while True:
        if await env.query("a", STATUS) == "s|finished|NULL\nSELECT 1":
            return
        await asyncio.sleep(0.01)


async def test_a_source_whose_commit_fails_goes_on_by_itself(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, failed = own_env, 0
    controller = env.environment.coordinator.ingestion.controller
    commit = controller._commit

    async def failing(progressed: Progressed) -> None:
        nonlocal failed
        if failed < 3:
            failed += 1
            raise OutOfMemory("out of memory")
        await commit(progressed)

    monkeypatch.setattr(controller, "_commit", failing)
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.05)
    await env.ran("a", f"CREATE SOURCE s FROM {FAST[:-1]}, UP TO 7)")
    while True:
        if "stalled|out of memory" in await env.query("a", STATUS):
            break
        await asyncio.sleep(0.01)
    await counted(env, 7)
    assert failed == 3
    history = [(each.state, each.error) for each in controller.states.history]
    stalled = history.index(("stalled", "out of memory"))
    assert history.count(("stalled", "out of memory")) == 1  # not once for each try
    assert history[stalled + 1][0] in ("running", "finished")
    history_sql = "SELECT count(*) FROM mz_internal.mz_source_status_history WHERE error IS NULL"
    assert int((await env.query("a", history_sql)).splitlines()[0]) >= 2


async def test_source_that_is_followed_twice_at_once_keeps_its_position(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran("a", f"CREATE SOURCE s FROM {FAST[:-1]}, UP TO 7)")
    await counted(env, 7)
    ingestion = env.environment.coordinator.ingestion
    (id,) = ingestion.controller.statuses()
    item = env.environment.coordinator.state.item(id)
    running = ingestion.controller.description(id)
    assert running is not None
    source = ingestion.controller._processes.get(id)
    assert source is not None
    source.description = replace(running, obstacle="another one")  # so it has to be run anew
    await asyncio.gather(ingestion.follow([item]), ingestion.follow([item]))
    found = ingestion.controller._processes.get(id)
    assert found is not None
    assert (found.description, found.position) == (running, {"ticks": 7})
    await counted(env, 7)


async def test_what_an_earlier_start_has_sent_counts_for_nothing(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", f"CREATE SOURCE s FROM {FAST[:-1]}, UP TO 7)")
    await counted(env, 7)
    controller = env.environment.coordinator.ingestion.controller
    (source,) = controller._processes.jobs().values()
    id = source.description.id
    (output,) = (each.id for each in source.description.outputs.values())
    row = pa.table({"counter": pa.array([8], pa.int64()), DIFF: pa.array([1], pa.int64())})

    async def send(run: int) -> None:
        message = Ingested(id, run, (output,), {"ticks": 7}, {"ticks": 8})
        controller.deliver(source, message, (row,))
        if source.committing is not None:
            await asyncio.wait([source.committing])

    await send(source.run - 1)
    assert source.position == {"ticks": 7}
    await send(source.run)
    assert source.position == {"ticks": 8}
    await counted(env, 8)


async def test_a_batch_of_an_earlier_start_is_not_confirmed_to_a_later_one() -> None:
    sent = asyncio.Event()

    class Reading:
        """Yields one batch, and waits."""

        async def run(self, durable: Durable) -> AsyncIterator[Batch]:
            yield Batch({}, {"part": 1})
            await asyncio.Event().wait()

        def committed(self, position: Position) -> None:
            assert position == {"part": 1}

    kind = SimpleNamespace(connector=lambda *_: Reading())
    start = StartSource(GlobalId("u1"), 2, LoadGenerator("counter"), {}, {}, {})

    def send(message: Message, tables: Tables = ()) -> None:
        if isinstance(message, Ingested):
            sent.set()

    source = Source(start, lambda _: cast(Kind, kind), send)
    await sent.wait()
    source.committed(1)
    assert source.position == {}
    source.committed(2)
    assert source.position == {"part": 1}
    source.stop()


async def test_tables_of_a_source_change_together(own_env: TestEnvironment) -> None:
    env = own_env
    generator = "LOAD GENERATOR AUCTION (TICK INTERVAL '2 ms', UP TO 300)"
    await env.ran("a", f"CREATE SOURCE s FROM {generator} FOR ALL TABLES")
    both = "SELECT (SELECT count(*) FROM auctions), (SELECT count(*) FROM bids)"
    auctions = 0
    while auctions < 150:
        auctions, bids = map(int, (await env.query("a", both)).splitlines()[0].split("|"))
        assert bids == 10 * auctions
    open_bids = "SELECT count(*) FROM bids JOIN auctions a ON auction_id = a.id WHERE bid_time"
    await env.ran("a", "DROP SOURCE users")  # the others go on
    while auctions < 299:
        auctions, bids = map(int, (await env.query("a", both)).splitlines()[0].split("|"))
        assert bids == 10 * auctions
    assert await env.query("a", f"{open_bids} <= end_time") == "2990\nSELECT 1"
    assert await env.query("a", "SELECT count(*) FROM accounts") == "20\nSELECT 1"


async def test_sources_are_shown_and_dropped_with_their_parts(own_env: TestEnvironment) -> None:
    env = own_env
    tables = "FOR TABLES (users AS people, bids) EXPOSE PROGRESS AS p"
    await env.ran("a", f"CREATE SOURCE s FROM LOAD GENERATOR AUCTION {tables}")
    assert (await env.query("a", "SHOW SOURCES")).splitlines() == [
        "bids|subsource|NULL",
        "p|progress|NULL",
        "people|subsource|NULL",
        "s|load-generator|quickstart",
        "SELECT 4",
    ]
    await env.ran("a", "ALTER SOURCE s RENAME TO house")
    assert (await env.query("a", "SHOW CREATE SOURCE house")).splitlines()[0] == (
        "foreshore.public.house|CREATE SOURCE foreshore.public.house IN CLUSTER quickstart FROM "
        "LOAD GENERATOR AUCTION (TICK INTERVAL = '1000 ms') FOR TABLES (users AS "
        "foreshore.public.people, bids AS foreshore.public.bids) EXPOSE PROGRESS AS "
        "foreshore.public.p"
    )
    shown = await env.query("a", "SHOW CREATE SOURCE people")
    assert "people FROM SOURCE foreshore.public.house (REFERENCE users)" in shown
    await env.ran("a", "ALTER SOURCE house RENAME TO s")
    assert await env.query("a", "SHOW TABLES") == "bids\npeople\nSELECT 2"
    assert "2BP01" in await env.query("a", "DROP CLUSTER quickstart")
    await env.ran("a", "CREATE VIEW v AS SELECT * FROM people")
    assert "2BP01" in await env.query("a", "DROP SOURCE s")
    await env.ran("a", "DROP SOURCE s CASCADE")
    assert await env.query("a", "SHOW SOURCES") == "SELECT 0"
    assert await env.query("a", STATUS) == "SELECT 0"
    await env.ran("a", "BEGIN", f"CREATE SOURCE s FROM {FAST}", "ROLLBACK")
    assert await env.query("a", STATUS) == "SELECT 0"


async def test_a_source_is_not_without_its_progress(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", "CREATE SCHEMA apart", f"CREATE SOURCE t FROM {FAST}")
    await env.ran("a", f"CREATE SOURCE s FROM {FAST} EXPOSE PROGRESS AS apart.s_progress")
    for statement in ("DROP SOURCE apart.s_progress", "DROP SOURCE t_progress"):
        assert (await env.query("a", statement)).startswith("ERROR 2BP01"), statement
    await env.ran("a", "DROP SOURCE t_progress CASCADE", "DROP SCHEMA apart CASCADE")
    assert await env.query("a", "SHOW SOURCES") == "SELECT 0"
    assert await env.query("a", STATUS) == "SELECT 0"


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO s VALUES (1)", '42809: cannot change source "s"'),
        ("UPDATE s SET counter = 1", '42809: cannot change source "s"'),
        ("DELETE FROM s", '42809: cannot change source "s"'),
        ("COPY s FROM STDIN", '42809: cannot change source "s"'),
        ("TRUNCATE s", '42809: "s" is not a table'),
        ("ALTER TABLE s ADD COLUMN x int", '42809: "s" is not a table'),
        ("DROP TABLE s", '42809: "s" is not a table'),
        ("DROP SOURCE t", '42809: "t" is not a source'),
        ("CREATE SOURCE x FROM POSTGRES CONNECTION no (PUBLICATION 'p')", "42704: connection"),
        ("CREATE SOURCE x FROM POSTGRES CONNECTION aws (PUBLICATION 'p')", "42809: connection"),
        ("CREATE SOURCE x FROM POSTGRES CONNECTION pg", "22023: POSTGRES CONNECTION needs the op"),
        (
            "CREATE SOURCE x FROM POSTGRES CONNECTION pg (PUBLICATION 'p')",
            "08006: could not connect to the PostgreSQL server at 127.0.0.1:1",
        ),
        ("CREATE SOURCE x FROM LOAD GENERATOR NONE", '22023: unknown load generator "none"'),
        ("CREATE SOURCE x FROM LOAD GENERATOR COUNTER (A 1)", '42601: unknown option "a"'),
        ("CREATE SOURCE x FROM LOAD GENERATOR COUNTER (UP TO '-1')", '22023: option "up to" must'),
        (
            "CREATE SOURCE x FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1 month')",
            '22023: option "tick interval" must',
        ),
        (
            "CREATE SOURCE x FROM LOAD GENERATOR COUNTER FOR ALL TABLES",
            "22023: the source has rows",
        ),
        ("CREATE SOURCE x FROM LOAD GENERATOR AUCTION FOR TABLES (no)", '42P01: table "no" does'),
        ("CREATE SOURCE s FROM LOAD GENERATOR COUNTER", '42P07: relation "s" already exists'),
    ],
)
async def test_what_cannot_be_done_is_refused(
    env: TestEnvironment, statement: str, error: str
) -> None:
    await env.ran("a", "CREATE SOURCE IF NOT EXISTS s FROM LOAD GENERATOR COUNTER")
    await env.ran("a", "CREATE TABLE IF NOT EXISTS t (x int)")
    nowhere = "HOST '127.0.0.1', PORT 1, DATABASE 'd', USER 'u'"
    await env.ran("a", f"CREATE CONNECTION IF NOT EXISTS pg TO POSTGRES ({nowhere})")
    await env.ran("a", "CREATE CONNECTION IF NOT EXISTS aws TO AWS (REGION 'x')")
    assert f"ERROR {error}" in await env.query("a", statement)


@pytest.mark.full
async def test_a_process_of_its_own_reads_a_source(own_env: TestEnvironment) -> None:
    env = own_env
    await env.close()
    env.ingest = ProcessLauncher(INGEST_COMMAND)
    await env.open()
    await env.ran("a", f"CREATE SOURCE s FROM {FAST}")
    await counted(env, 100)
    await env.ran("a", "DROP SOURCE s")
