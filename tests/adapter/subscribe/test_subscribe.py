"""SUBSCRIBE in one environment: exact at every frontier, one changelog for equal sources."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from foreshore.adapter.subscribe import subscriber
from foreshore.compute import changelog
from tests.adapter.harness import TestEnvironment, in_environment, until
from tests.adapter.subscribe.replay import Replay, Row

State = Counter[Row]


def rows_of(answer: str) -> list[Row]:
    """Return the rows of a FETCH, whose columns are numbers, t, f, NULL or text."""
    words = {"NULL": None, "t": True, "f": False}
    assert not answer.startswith("ERROR"), answer
    return [
        tuple(words[w] if w in words else int(w) if w.lstrip("-").isdigit() else w for w in line)
        for line in (each.split("|") for each in answer.splitlines())
        if len(line) > 1
    ]


async def declare(env: TestEnvironment, session: str, statement: str) -> None:
    answer = await env.query(session, f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {statement}")
    assert answer == "BEGIN\nDECLARE CURSOR\nT"


async def fetch(env: TestEnvironment, session: str) -> list[Row]:
    return rows_of(await env.query(session, "FETCH ALL c WITH (TIMEOUT = '50ms')"))


def counts(state: State) -> State:
    found = Counter(row[1] for row in state)
    return Counter((v, n) for v, n in found.items())


SOURCES: dict[str, tuple[str, int, Callable[[State], State]]] = {
    "table": ("h", 1, lambda state: state),
    "part": ("(SELECT v, k FROM h WHERE k > 3)", 2, lambda s: Counter((r[1], r[0]) for r in s if r[0] > 3)),
    "index": ("counted", 1, counts),
    "index_part": ("(SELECT v FROM counted WHERE n = 2)", 1, lambda s: Counter((v,) for v, n in counts(s) if n == 2)),
    "index_that_may_fail": ("(SELECT v, n + 1 AS m FROM counted)", 1, lambda s: Counter((v, n + 1) for v, n in counts(s))),
    "view": ("kept", 1, lambda state: Counter((k * 10, v) for k, v in state)),
    "query": ("(SELECT k % 3, count(*) AS n FROM h GROUP BY 1)", 1, lambda s: Counter(Counter(r[0] % 3 for r in s).items())),
}  # fmt: skip
COLUMNS = {name: 1 if name == "index_part" else 2 for name in SOURCES}
KEYS = {
    "table": "k",
    "part": "k",
    "index": "v",
    "index_part": "v",
    "index_that_may_fail": "v",
    "view": "k",
    "query": '"?column?"',
}


def test_replay_of_any_source_equals_collection_at_every_frontier(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    random_ = random.Random(7)

    async def play() -> None:
        await env.query(
            "w",
            "CREATE TABLE h (k int, v text);"
            " CREATE VIEW counted AS SELECT v, count(*) AS n FROM h GROUP BY v;"
            " CREATE INDEX ON counted (v);"
            " CREATE MATERIALIZED VIEW kept AS SELECT k * 10 AS k, v FROM h",
        )
        coordinator = env.environment.coordinator
        await until(lambda: bool(coordinator.arranged("quickstart")))
        state: dict[int, str] = {}
        states: list[tuple[int, State]] = []
        replays: dict[str, tuple[Replay, Callable[[State], State], State | None]] = {}

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
            done = await env.query("w", "; ".join(sql))
            assert "ERROR" not in done
            states.append((coordinator.oracle.read_ts(), Counter(state.items())))

        def at(time: int) -> State:
            return next((s for t, s in reversed(states) if t <= time), Counter())

        async def follow(tag: str, source: str, envelope: str | None, *, snapshot: bool) -> None:
            text, key, of = SOURCES[source]
            name = f"{tag}.{source}.{envelope}.{snapshot}"
            clause = f" ENVELOPE {envelope} (KEY ({KEYS[source]}))" if envelope else ""
            options = f"WITH (PROGRESS, SNAPSHOT = {str(snapshot).lower()})"
            before = of(Counter(state.items()))
            await declare(env, name, f"{text}{clause} {options}")
            replay = Replay(envelope, COLUMNS[source])
            if not snapshot:
                replay.rows += before
            replays[name] = replay, of, None
            del key

        await write()
        for source in SOURCES:
            for envelope in (None, "UPSERT", "DEBEZIUM"):
                if source == "part" and envelope:
                    continue  # its columns come in another order
                await follow("a", source, envelope, snapshot=True)
        for number in range(25):
            await write()
            if number == 10:
                for source in SOURCES:
                    await follow("b", source, None, snapshot=False)
                    await follow("b", source, None, snapshot=True)
            for name in random_.sample(sorted(replays), 4):
                replay, of, _ = replays[name]
                await check(name, replay, of, await fetch(env, name), at)
        last = states[-1][0]
        for name, (replay, of, _) in replays.items():
            async with asyncio.timeout(30):
                while not (replay.began and replay.frontier > last):
                    await check(name, replay, of, await fetch(env, name), at)
            assert replay.rows == of(at(last)), name
            assert not replay.violations
        # One for each of h, the index, the materialized view and two queries.
        assert len(list(coordinator.changelogs)) == 5
        for name in replays:
            await env.query(name, "COMMIT")
        assert not list(coordinator.changelogs)

    async def check(
        name: str,
        replay: Replay,
        of: Callable[[State], State],
        rows: list[Row],
        at: Callable[[int], State],
    ) -> None:
        for row in rows:
            replay.take([row])
            if row[1] and replay.began:
                assert replay.rows == of(at(replay.frontier - 1)), (name, replay.frontier)

    runner.run(play())


async def test_slow_reader_of_table_reads_shard_and_of_query_gets_53400(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog, "LOG_BYTES", 1)
    await env.query("w", "CREATE TABLE slow (i int)")
    await declare(env, "slow", "slow")
    await declare(env, "slow.sum", "(SELECT sum(i) AS s FROM slow)")
    changelogs = env.environment.coordinator.changelogs
    await until(lambda: len(list(changelogs)) == 2)
    (log,) = [each for each in changelogs if changelogs.source(each).is_shard]
    first = await env.query("slow.sum", "FETCH 1 c WITH (TIMEOUT = '60s')")
    assert first.splitlines()[0].endswith("|1|NULL")
    for i in range(20):
        await env.query("w", f"INSERT INTO slow VALUES ({i})")
    assert len(log._log) == 1
    found: list[Row] = []
    async with asyncio.timeout(20):
        while len(found) < 20:
            found += await fetch(env, "slow")
    assert [row[2] for row in found] == list(range(20))
    assert len({row[0] for row in found}) == 20
    answer = ""
    while not answer.startswith("ERROR"):
        await env.query("w", "INSERT INTO slow VALUES (1); INSERT INTO slow VALUES (1)")
        answer = await env.query("slow.sum", "FETCH 1 c WITH (TIMEOUT = '100ms')")
    assert answer.splitlines()[0] == "ERROR 53400: the subscriber does not keep up"
    for name in ("slow", "slow.sum"):
        await env.query(name, "ROLLBACK")


def told(time: int, diff: int, value: int, width: int) -> str:
    return f"{time}|{diff}" + f"|{value}" * width


async def test_as_of_and_up_to_bound_the_stream(env: TestEnvironment) -> None:
    oracle = env.environment.coordinator.oracle
    await env.query("w", "CREATE TABLE timed (i int); INSERT INTO timed VALUES (1)")
    first = oracle.read_ts()
    await env.query("w", "INSERT INTO timed VALUES (2)")
    second = oracle.read_ts()
    await env.query("w", "DELETE FROM timed WHERE i = 1")
    third = oracle.read_ts()
    for source in ("timed", "(SELECT max(i) AS i, i AS j FROM timed GROUP BY i)"):
        width = 1 if source == "timed" else 2
        history = await env.query("r", f"SUBSCRIBE {source} AS OF {first} UP TO {third + 1}")
        assert history.splitlines() == [
            told(first, 1, 1, width), told(second, 1, 2, width),
            told(third, -1, 1, width), "SUBSCRIBE 3",
        ]  # fmt: skip
        later = f"SUBSCRIBE {source} WITH (SNAPSHOT = false) AS OF {first} UP TO {third}"
        answer = await env.query("r", later)
        assert answer == told(second, 1, 2, width) + "\nSUBSCRIBE 1"
        none = await env.query("r", f"SUBSCRIBE {source} AS OF {second} UP TO {second}")
        assert none == "SUBSCRIBE 0"
        once = await env.query("r", f"SUBSCRIBE {source} AS OF {first} UP TO {first + 1}")
        assert once == told(first, 1, 1, width) + "\nSUBSCRIBE 1"
    soon = oracle.read_ts() + 3_000
    waiting = env.query("r", f"SUBSCRIBE timed AS OF AT LEAST {soon} UP TO {soon + 1}")
    assert await waiting == f"{soon}|1|2\nSUBSCRIBE 1"
    before = await env.query("r", f"SUBSCRIBE timed AS OF {second} UP TO {first}")
    assert before.startswith(f"ERROR 22023: UP TO {first} is before AS OF {second}")
    unreadable = await env.query("r", "SUBSCRIBE timed AS OF 1")
    assert unreadable.startswith("ERROR 22023: cannot read as of 1")
    never = await env.query("r", "SUBSCRIBE (SELECT 1 AS a) WITH (PROGRESS)")
    assert [line.split("|")[1:] for line in never.splitlines()] == [
        ["t", "NULL", "NULL"], ["f", "1", "1"], ["t", "NULL", "NULL"], []
    ]  # fmt: skip
    assert not list(env.environment.coordinator.changelogs)


async def test_progress_without_a_change_waits_and_after_one_does_not(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frontier of a table moves several times a second; the rows about it come seldom."""
    monkeypatch.setattr(subscriber, "PROGRESS_S", 3600.0)
    coordinator = env.environment.coordinator
    await env.query("w", "CREATE TABLE still (a int)")
    end = coordinator.oracle.read_ts() + 3_000
    await declare(env, "idle", f"still WITH (PROGRESS) UP TO {end}")
    await declare(env, "told", "still WITH (PROGRESS)")
    begun = coordinator.oracle.read_ts()
    told = await fetch(env, "told")
    while coordinator.oracle.read_ts() < begun + 1_500:  # several moves of the frontier
        told += await fetch(env, "told")
    assert len(told) <= 3, told  # AS OF, that the contents are whole, one about time
    await env.query("w", "INSERT INTO still VALUES (7)")
    rows: list[Row] = []
    while len(rows) < 2:
        rows += await fetch(env, "told")
    assert [row[1:] for row in rows] == [(False, 1, 7), (True, None, None)]
    # The last row of progress comes at the end.
    rows = []
    while not rows or rows[-1][0] != end:
        rows += await fetch(env, "idle")
    assert sum(row[1] for row in rows) <= 5, rows
    for name in ("idle", "told"):
        await env.query(name, "ROLLBACK")


async def test_constant_source_ends_after_its_contents(env: TestEnvironment) -> None:
    """For each that follows it: by itself, beside another, and since before it was known."""
    oracle = env.environment.coordinator.oracle
    count = "(SELECT count(*) FROM (VALUES (1), (2)) AS v (x))"
    await env.query("w", f"CREATE MATERIALIZED VIEW constant AS {count[1:-1]}")
    first = await env.query("r", "SUBSCRIBE constant")
    await env.query("w", "SELECT * FROM constant")
    grouped = "(SELECT count, count(*) FROM constant GROUP BY 1)"
    for n, source in enumerate(("constant", count, grouped)):
        for i in range(2):  # the second finds what the first has opened
            name = f"c{n}{i}"
            await declare(env, name, f"{source} WITH (PROGRESS)")
            answer = ""
            rows: list[Row] = []
            while answer != "FETCH 0\nT":
                answer = await env.query(name, "FETCH ALL c WITH (TIMEOUT = '20s')")
                rows += rows_of(answer)
            told = [row[3] for row in rows if not row[1]]
            assert (rows[0][1], told, rows[-1][1]) == (True, [2], True), source
            assert rows[0][0] < rows[-1][0] <= oracle.read_ts() + 1
        changes = f"SUBSCRIBE {source} WITH (SNAPSHOT = false)"
        assert await env.query("r", changes) == "SUBSCRIBE 0"
        soon = oracle.read_ts() + 60_000
        later = await env.query("r", f"SUBSCRIBE {source} WITH (PROGRESS) AS OF {soon}")
        assert [row[:2] for row in rows_of(later)] == [
            (soon, True), (soon, False), (soon + 1, True)
        ]  # fmt: skip
    assert first.endswith("|1|2\nSUBSCRIBE 1")
    for n in range(3):
        for i in range(2):
            await env.query(f"c{n}{i}", "ROLLBACK")
    assert not list(env.environment.coordinator.changelogs)


async def test_subscription_to_future_time_leaves_others_sharing_a_changelog(
    env: TestEnvironment,
) -> None:
    coordinator = env.environment.coordinator
    await env.query("w", "CREATE TABLE often (k int); INSERT INTO often VALUES (1)")
    source = "(SELECT k, count(*) FROM often GROUP BY k)"
    later = f"{source} AS OF {coordinator.oracle.read_ts() + 3600_000}"
    await env.query("waits", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {later}")
    names = [f"n{i}" for i in range(3)]
    for name in names:
        await declare(env, name, source)
        assert "|1|1|1\n" in await env.query(name, "FETCH 1 c")
    assert len(list(coordinator.changelogs)) == 1  # "waits" has joined none yet
    for name in ("waits", *names):
        await env.query(name, "ROLLBACK")
    assert not list(coordinator.changelogs)


async def test_progress_of_future_as_of_begins_there_and_never_goes_back(
    env: TestEnvironment,
) -> None:
    oracle = env.environment.coordinator.oracle
    await env.query("w", "CREATE TABLE early (i int); INSERT INTO early VALUES (1)")
    sources = ("early", "(SELECT max(i) AS i FROM early)")
    for n, source in enumerate(sources):  # other subscribers, so that changelogs are shared
        await declare(env, f"first{n}", source)
        await fetch(env, f"first{n}")
    soon = oracle.read_ts() + 1500
    followers = [(s, snapshot) for s in sources for snapshot in (True, False)]
    for n, (source, snapshot) in enumerate(followers):
        await declare(env, f"p{n}", f"{source} WITH (PROGRESS, SNAPSHOT = {snapshot}) AS OF {soon}")
    for i in range(2, 5):
        await env.query("w", f"INSERT INTO early VALUES ({i})")
        await asyncio.sleep(0.05)
    for n, (_, snapshot) in enumerate(followers):
        replay = Replay(None, 1)
        while replay.frontier <= soon:
            replay.take(await fetch(env, f"p{n}"))
        contents = ([1, 2, 3, 4], [4])[n // 2] if snapshot else []
        assert sorted(v for (v,) in replay.complete.elements()) == contents
    for name in (*(f"first{n}" for n in range(2)), *(f"p{n}" for n in range(4))):
        await env.query(name, "ROLLBACK")


async def test_drop_or_data_error_ends_streams_with_that_error(env: TestEnvironment) -> None:
    await env.query(
        "w",
        "CREATE TABLE doomed (i int); INSERT INTO doomed VALUES (1);"
        " CREATE MATERIALIZED VIEW inverse AS SELECT 10 / i AS q FROM doomed",
    )
    sources = (
        "doomed",
        "inverse",
        "(SELECT 10 / i FROM doomed)",
        "(SELECT count(*) FROM doomed)",
    )
    for n, source in enumerate(sources):
        await declare(env, f"d{n}", source)
        assert "ERROR" not in await env.query(f"d{n}", "FETCH 1 c")
    coordinator = env.environment.coordinator
    assert len(list(coordinator.changelogs)) == 4
    holds = env.environment.coordinator.holds.collections.values()
    await until(lambda: not any(each.held for each in holds))  # nobody stops the past
    await env.query("w", "INSERT INTO doomed VALUES (0)")
    # the second is not listened to any more, nor is the third computed
    await until(lambda: len(list(coordinator.changelogs)) == 2)
    for n in (1, 2):
        answer = await env.query(f"d{n}", "FETCH 1 c WITH (TIMEOUT = '60s')")
        assert answer.startswith("ERROR 22012: division by zero")
    refused = await env.query("r", "SUBSCRIBE inverse")
    assert refused.startswith("ERROR 22012: division by zero")
    await env.query("w", "DELETE FROM doomed WHERE i = 0")
    await declare(env, "again", "inverse")
    assert "|1|10" in await env.query("again", "FETCH 1 c")
    await env.query("again", "COMMIT")
    await env.query("w", "DROP MATERIALIZED VIEW inverse; DROP TABLE doomed")
    for n in (0, 3):
        answer = ""
        while not answer.startswith("ERROR"):  # what was heard before comes first
            answer = await env.query(f"d{n}", "FETCH ALL c WITH (TIMEOUT = '60s')")
        wanted = 'ERROR 55000: the subscription has ended because "doomed" was dropped'
        assert answer.splitlines()[0] == wanted
    for n in range(4):
        await env.query(f"d{n}", "ROLLBACK")
    assert not list(env.environment.coordinator.changelogs)


async def test_slow_reader_gets_no_changes_after_an_error(env: TestEnvironment) -> None:
    await env.query(
        "w",
        "CREATE TABLE divisors (i int); INSERT INTO divisors VALUES (1);"
        " CREATE MATERIALIZED VIEW tenths AS SELECT 10 / i AS q FROM divisors",
    )
    await declare(env, "slow", "tenths WITH (PROGRESS)")
    replay = Replay(None, 1)
    while replay.rows != Counter([(10,)]):
        replay.take(await fetch(env, "slow"))
    changelogs = env.environment.coordinator.changelogs
    (log,) = changelogs
    (shard,) = changelogs.source(log).inputs
    listens = env.storage._shards[shard].listens
    for sql in (
        "INSERT INTO divisors VALUES (2)",
        "INSERT INTO divisors VALUES (0)",
        "INSERT INTO divisors VALUES (5)",
        "DELETE FROM divisors WHERE i = 0",
        "INSERT INTO divisors VALUES (10)",
    ):
        await env.query("w", sql)
        await env.query("w", "SELECT * FROM tenths")  # which waits until that is known
    assert log.end is not None
    assert not list(env.environment.coordinator.changelogs)
    assert all(each.cancelled for each in listens)
    answer = ""
    async with asyncio.timeout(20):
        while not (answer := await env.query("slow", "FETCH 1 c")).startswith("ERROR"):
            replay.take(rows_of(answer))
    assert answer.startswith("ERROR 22012: division by zero")
    assert replay.rows == Counter([(10,), (5,)])
    assert replay.frontier == log.frontier
    await env.query("slow", "ROLLBACK")
    await declare(env, "slow", "tenths")
    assert sorted(row[2] for row in await fetch(env, "slow")) == [1, 2, 5, 10]
    await env.query("slow", "ROLLBACK")
    assert not list(env.environment.coordinator.changelogs)


async def test_reader_of_shard_gets_changes_before_an_error_first(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = env.environment.coordinator.oracle
    await env.query(
        "w",
        "CREATE TABLE halves (i int); INSERT INTO halves VALUES (1);"
        " CREATE MATERIALIZED VIEW parts AS SELECT 20 / i AS q FROM halves",
    )
    await declare(env, "behind", "parts WITH (PROGRESS)")
    behind = Replay(None, 1)
    while behind.rows != Counter([(20,)]):
        behind.take(await fetch(env, "behind"))
    first = oracle.read_ts()
    failing = 0
    with monkeypatch.context() as patched:
        patched.setattr(changelog, "LOG_BYTES", 1)
        for sql in (
            "INSERT INTO halves VALUES (2)",
            "INSERT INTO halves VALUES (4)",
            "INSERT INTO halves VALUES (0)",
            "INSERT INTO halves VALUES (5)",
            "DELETE FROM halves WHERE i = 0",
            "INSERT INTO halves VALUES (10)",
        ):
            await env.query("w", sql)
            failing = oracle.read_ts() if sql.endswith("(0)") else failing
            await env.query("w", "SELECT * FROM parts")  # which waits until that is known
    await declare(env, "early", f"parts WITH (PROGRESS, SNAPSHOT = false) AS OF {first}")
    early = Replay(None, 1)
    early.rows[20,] = 1
    await declare(env, "whole", f"parts WITH (PROGRESS) AS OF {first}")
    replays = {"behind": behind, "early": early, "whole": Replay(None, 1)}
    for name, replay in replays.items():
        answer = ""
        async with asyncio.timeout(20):
            while not (answer := await env.query(name, "FETCH 1 c")).startswith("ERROR"):
                replay.take(rows_of(answer))
        assert answer.startswith("ERROR 22012: division by zero")
        assert replay.rows == Counter([(20,), (10,), (5,)]), name
        assert first < replay.frontier <= failing, name
        await env.query(name, "ROLLBACK")
    assert not list(env.environment.coordinator.changelogs)
    refused = await env.query("r", f"SUBSCRIBE parts AS OF {failing}")
    assert refused.startswith("ERROR 22012")


async def test_drop_while_waiting_for_as_of_ends_the_stream(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE brief (i int)")
    soon = env.environment.coordinator.oracle.read_ts() + 15_000
    await declare(env, "b", f"brief AS OF {soon}")
    waiting = asyncio.ensure_future(env.query("b", "FETCH 1 c", alone=False))
    await asyncio.sleep(0.1)
    await env.query("w", "DROP TABLE brief", alone=False)
    answer = await waiting
    assert answer.startswith('ERROR 55000: the subscription has ended because "brief" was dropped')
    await env.query("b", "ROLLBACK")


@pytest.mark.parametrize("dropped", [False, True])
def test_error_gone_before_future_as_of_does_not_end_the_stream(
    tmp_path: Path, dropped: bool
) -> None:
    async def play(env: TestEnvironment) -> None:
        coordinator = env.environment.coordinator
        oracle = coordinator.oracle
        await env.query("w", "CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 2)")
        sums = "(SELECT k, sum(10 / v) FROM t GROUP BY k) WITH (SNAPSHOT = false)"
        await declare(env, "first", sums)
        await until(lambda: bool(list(coordinator.changelogs)))
        (log,) = coordinator.changelogs
        now = oracle.read_ts()
        await until(lambda: log.frontier > now)  # so that the error is published soon
        later = oracle.read_ts() + 4000
        await declare(env, "second", f"{sums} AS OF {later}")
        await env.query("w", "INSERT INTO t VALUES (1, 0)")
        await until(lambda: not list(coordinator.changelogs))
        await env.query("w", "DELETE FROM t WHERE v = 0")
        assert oracle.read_ts() < later
        if dropped:
            await env.query("w", "DROP TABLE t")
        else:
            await until(lambda: oracle.read_ts() > later)
            await env.query("w", "INSERT INTO t VALUES (1, 5)")
        answer = await env.query("second", "FETCH 2 c WITH (TIMEOUT = '60s')")
        if dropped:
            ended = 'ERROR 55000: the subscription has ended because "t" was dropped'
            assert answer.splitlines()[0] == ended
        else:
            assert sorted(row[1:] for row in rows_of(answer)) == [(-1, 1, 5), (1, 1, 7)]

    in_environment(tmp_path, play, lag_ms=50)


@pytest.mark.parametrize(
    "loss",
    [
        "ALTER TABLE t DROP CONSTRAINT t_k_key",
        "ALTER TABLE t ALTER COLUMN k DROP NOT NULL",
        "BEGIN; ALTER TABLE t DROP CONSTRAINT t_k_key; INSERT INTO t VALUES (7, 0); COMMIT",
    ],
)
async def test_dropped_constraint_ends_streams_whose_plan_may_need_it(
    env: TestEnvironment, loss: str
) -> None:
    resting = {
        "part": "(SELECT DISTINCT k FROM t)",
        "whole": "(SELECT DISTINCT * FROM t)",
        "view": "distinct_keys",
        "query": "(SELECT k, count(*) FROM t GROUP BY k HAVING k IS NOT NULL)",
        "progress": "(SELECT DISTINCT k FROM t) WITH (PROGRESS)",
        "left_out": "(SELECT o.i FROM o LEFT JOIN t ON o.i = t.k)",
        "durable": "TO SUBSCRIPTION d",
    }

    async def drained(name: str) -> tuple[list[Row], str]:
        told: list[Row] = []
        while True:
            answer = await env.query(name, "FETCH ALL c WITH (TIMEOUT = '60s')")
            if answer.startswith(("ERROR", "FETCH 0")):
                return told, answer.splitlines()[0]
            told += rows_of(answer)

    await env.query(
        "w",
        "CREATE TABLE t (k int NOT NULL UNIQUE, n int); INSERT INTO t VALUES (1, 1);"
        " CREATE TABLE o (i int); INSERT INTO o VALUES (1);"
        " CREATE VIEW distinct_keys AS SELECT DISTINCT k FROM t;"
        " CREATE SUBSCRIPTION d FOR (SELECT DISTINCT k FROM t)",
    )
    oracle = env.environment.coordinator.oracle
    going_on = {"table": "t", "other": "(SELECT DISTINCT i FROM o)"}
    for name, source in (*resting.items(), *going_on.items()):
        await declare(env, name, source)
        while not any(1 in row[2:] for row in await fetch(env, name)):
            pass
    over, to_come = oracle.read_ts() + 500, oracle.read_ts() + 4_000
    await declare(env, "to_come", f"(SELECT DISTINCT k FROM t) AS OF {to_come}")
    await declare(env, "over", f"(SELECT DISTINCT k FROM t) UP TO {over}")
    await until(lambda: oracle.read_ts() > over)
    await env.query("w", "BEGIN; ALTER TABLE t DROP CONSTRAINT t_k_key; ROLLBACK")
    await env.query("w", "INSERT INTO t VALUES (5, 5); INSERT INTO o VALUES (5)")
    waiting = [asyncio.create_task(drained(name)) for name in resting]
    await asyncio.sleep(0.3)  # until they have taken it
    assert not any(each.done() for each in waiting)
    await env.ran("w", loss)
    await env.query("w", "INSERT INTO t VALUES (7, 7)" + ", (7, 8)" * ("k_key" in loss))
    ended = 'ERROR 55000: the subscription has ended because "t" was altered'
    for name, each in zip(resting, waiting, strict=True):
        told, answer = await each
        assert answer == ended, name
        assert any(5 in row[2:] for row in told), name
        assert not any(7 in row[2:] for row in told), name
    assert await drained("to_come") == ([], ended)
    told, answer = await drained("over")
    assert (*(row[1:] for row in told), answer) == ((1, 1), "FETCH 0")
    for name, last in (("table", 7), ("other", 5)):
        while not any(row[2] == last for row in await fetch(env, name)):
            pass
    await env.query("durable", "ROLLBACK")
    await declare(env, "durable", "TO SUBSCRIPTION d")  # goes on from its position
    rows: list[Row] = []
    while len(rows) < 3:
        rows += await fetch(env, "durable")
    assert [row[1:] for row in rows] == [(1, 1), (1, 5), (1, 7)]
    for name in (*resting, *going_on, "to_come", "over"):
        await env.query(name, "ROLLBACK")
    assert not list(env.environment.coordinator.changelogs)
    await env.query("w", "DROP SUBSCRIPTION d; DROP VIEW distinct_keys; DROP TABLE t, o")


async def test_drop_cluster_ends_streams_that_it_computes(env: TestEnvironment) -> None:
    await env.query(
        "w",
        "CREATE TABLE near (i int); INSERT INTO near VALUES (1);"
        " CREATE CLUSTER away SIZE 'embedded'",
    )
    for name, source in (("q", "(SELECT count(*) FROM near)"), ("t", "near")):
        await env.query(name, "SET cluster = away")
        await declare(env, name, source)
        assert "ERROR" not in await env.query(name, "FETCH 1 c")
    await env.query("w", "DROP CLUSTER away")
    answer = await env.query("q", "FETCH 1 c WITH (TIMEOUT = '60s')")
    assert answer.startswith(
        'ERROR 55000: the subscription has ended because cluster "away" was dropped'
    )
    await env.query("w", "INSERT INTO near VALUES (2)")
    assert "|1|2" in await env.query("t", "FETCH 1 c WITH (TIMEOUT = '60s')")
    for name in ("q", "t"):
        await env.query(name, "ROLLBACK; RESET cluster")


@pytest.mark.parametrize(
    "query",
    [
        "SUBSCRIBE inverted",
        "SUBSCRIBE (SELECT sum(q) FROM inverted)",
        "SUBSCRIBE summed",
        "SELECT * FROM CHANGES(inverted)",
    ],
)
async def test_read_after_restart_waits_for_errors_of_view(tmp_path: Path, query: str) -> None:
    env = TestEnvironment(tmp_path / "data")
    await env.open()
    try:
        await env.query(
            "w",
            "CREATE TABLE zeros (i int); INSERT INTO zeros VALUES (1);"
            " CREATE MATERIALIZED VIEW inverted AS SELECT 10 / i AS q FROM zeros;"
            " CREATE VIEW summed AS SELECT sum(q) AS s FROM inverted;"
            " CREATE INDEX ON summed (s)",
        )
        await env.query("w", "INSERT INTO zeros VALUES (0)")
        assert (await env.query("w", "SELECT * FROM inverted")).startswith("ERROR 22012")
    finally:
        await env.close()
    await env.open()
    try:  # at a time that no replica has to be waited for
        await env.query("r", "BEGIN ISOLATION LEVEL SERIALIZABLE")
        answer = await env.query("r", f"DECLARE c CURSOR FOR {query}; FETCH 1 c")
        assert "ERROR 22012: division by zero" in answer, answer
    finally:
        await env.close()
