"""CHANGES(...): the updates of a relation as rows."""

import asyncio
import random
from collections import Counter
from functools import reduce
from typing import Any

import pytest

from tests.adapter.harness import Gate, TestEnvironment


def rows(answer: str) -> list[tuple[str, ...]]:
    assert not answer.startswith("ERROR"), answer
    return [tuple(line.split("|")) for line in answer.splitlines()[:-1]]


async def test_changes_are_exact_between_any_two_times(env: TestEnvironment) -> None:
    random_ = random.Random(3)
    await env.query(
        "w",
        "CREATE TABLE c (k int, v text);"
        " CREATE MATERIALIZED VIEW c_sizes AS SELECT v, count(*) AS n FROM c GROUP BY v",
    )
    oracle = env.environment.coordinator.oracle
    state: dict[int, str] = {}
    times = [oracle.read_ts()]
    states: list[dict[int, str]] = [{}]
    for _ in range(12):
        k, v = random_.randint(1, 4), random_.choice("xy")
        verb = f"UPDATE c SET v = '{v}' WHERE k = {k}" if k in state else (
            f"INSERT INTO c VALUES ({k}, '{v}')"
        )  # fmt: skip
        if k in state and random_.random() < 0.3:
            verb = f"DELETE FROM c WHERE k = {k}"
            del state[k]
        else:
            state[k] = v
        await env.ran("w", verb)
        times.append(oracle.read_ts())
        states.append(dict(state))
        if len(times) == 7:
            await env.storage.settle()
    for i in range(0, len(times), 2):
        for j in range(i, len(times), 3):
            sum_ = "SELECT sum(mz_diff), k, v FROM CHANGES({}, {}, {}) GROUP BY k, v"
            found = rows(await env.query("r", sum_.format("c", times[i], times[j])))
            net = Counter({(int(k), v): int(n) for n, k, v in found if int(n)})
            before, after = Counter(states[i].items()), Counter(states[j].items())
            after.subtract(before)
            assert net == Counter({row: n for row, n in after.items() if n}), (i, j)
    listed = rows(await env.query("r", f"SELECT DISTINCT mz_timestamp FROM changes(c, {times[0]})"))
    assert {int(t) for (t,) in listed} <= set(times[1:])
    joined = await env.query(
        "r",
        f"SELECT count(*) FROM CHANGES(public.c, {times[0]}) AS h JOIN CHANGES(c_sizes) AS s"
        " ON s.mz_timestamp = h.mz_timestamp AND s.v = h.v WHERE h.mz_diff > 0",
    )
    assert int(rows(joined)[0][0]) > 0
    here = await env.query(
        "r", f"SELECT count(*), (SELECT count(*) > 0 FROM pg_class) FROM CHANGES(c, {times[3]})"
    )
    assert int(rows(here)[0][0]) > 0
    window = f"CHANGES(c, {times[2]}, {times[5]})"
    assert rows(await env.query("r", f"SELECT * FROM {window} ORDER BY 1, 2, 3, 4")) == rows(
        await env.query(
            "r", f"SUBSCRIBE c WITH (SNAPSHOT = false) WITHIN TIMESTAMP ORDER BY mz_diff, k, v"
            f" AS OF {times[2]} UP TO {times[5] + 1}",
        )
    )  # fmt: skip


async def test_unreadable_changes_name_readable_times(env: TestEnvironment) -> None:
    await env.query(
        "w",
        "CREATE TABLE n (i int); CREATE VIEW nv AS SELECT i FROM n; CREATE INDEX ni ON nv (i)",
    )

    async def first(sql: str) -> str:
        return (await env.query("r", sql)).splitlines()[0]

    early = await env.query("r", "SELECT * FROM CHANGES(n, 5)")
    assert early.startswith('ERROR 22023: the changes of "n" after 5 through ')
    since = env.environment.coordinator.holds.since
    item = next(i for i in env.environment.coordinator.state.items() if i.name == "n")
    assert f"They can be read after {since(item.id)} through " in early
    assert (await first("SELECT * FROM CHANGES(n, 5, 4)")).startswith("ERROR 22023")
    assert await first("SELECT * FROM CHANGES(nv)") == (
        'ERROR 42809: "nv" is not a table or materialized view'
    )
    assert await first("SELECT * FROM CHANGES(nowhere)") == (
        'ERROR 42P01: relation "nowhere" does not exist'
    )
    for create in ("VIEW", "MATERIALIZED VIEW"):
        refused = await first(f"CREATE {create} bad AS SELECT * FROM CHANGES(n)")
        assert refused == "ERROR 0A000: CHANGES cannot be used in a view"
    for other in (
        "SUBSCRIBE (SELECT * FROM CHANGES(n))",
        "INSERT INTO n SELECT i FROM CHANGES(n)",
    ):
        assert await first(other) == "ERROR 0A000: CHANGES can be used in SELECT only"
    assert await first("SELECT * FROM CHANGES(1 + 1)") == (
        "ERROR 42883: the first argument of CHANGES must be the name of a relation"
    )
    assert await first("SELECT * FROM CHANGES(n, 1, 2, 3)") == (
        "ERROR 42883: CHANGES takes a relation and up to two times"
    )
    await env.query("r", "BEGIN; INSERT INTO n VALUES (1)")
    assert "0A000: CHANGES after writes" in await env.query("r", "SELECT * FROM CHANGES(n)")
    await env.query("r", "ROLLBACK")


@pytest.mark.parametrize(
    "awaited", ["wait_readable", "compute.maintained.errors_known", "storage.changes"]
)
async def test_changes_of_relation_dropped_while_waiting_fails(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, awaited: str
) -> None:
    coordinator = env.environment.coordinator
    *path, name = awaited.split(".")
    owner: Any = reduce(getattr, path, coordinator)
    await env.query(
        "w",
        "CREATE TABLE brief (i int); CREATE MATERIALIZED VIEW short AS SELECT count(*) FROM brief",
    )
    await env.query("w", "SELECT * FROM short")
    waits = Gate(monkeypatch, owner, name)
    asking = asyncio.create_task(env.query("r", "SELECT * FROM CHANGES(short)", alone=False))
    await waits.reached.wait()
    monkeypatch.undo()
    await env.query("w", "DROP MATERIALIZED VIEW short; DROP TABLE brief", alone=False)
    waits.open()
    assert (await asking).startswith("ERROR 42704: ")
