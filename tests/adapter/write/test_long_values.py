"""Rows with values that may become very long do not hold up the event loop."""

import threading
from typing import Any

import pytest

from foreshore.adapter.read.bound.in_process import rows_in_process
from foreshore.adapter.write import stage
from tests.adapter.harness import TestEnvironment

GROWING = (  # what is written for 1, a short argument, and for 2, a long one
    ("repeat('y', $1)", "7", "2000000"),
    ("repeat(repeat('ab', $1), 3)", "2", "1000000"),
    ("repeat('a', length(repeat('b', $1)))", "5", "1100000"),
    ("lpad($1::text, 10 * $1, '.')", "1", "1000000"),
    ("CASE WHEN $1 > 0 THEN repeat('z', $1) END", "3", "2000000"),
    ("replace(repeat('ab', $1), 'a', repeat('c', 10))", "2", "300000"),
)


@pytest.mark.parametrize(("cell", "short", "long"), GROWING)
async def test_only_long_values_use_the_engine(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, cell: str, short: str, long: str
) -> None:
    there: list[object] = []

    async def counted(*args: object, **options: bool) -> object:
        there.append(args)
        return await rows_in_process(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("foreshore.adapter.read.execute.rows_in_process", counted)
    await env.query("s", "CREATE TABLE long (n int, t text)")
    await env.query("s", f"PREPARE put AS INSERT INTO long VALUES ($1, {cell}) RETURNING n")
    for given, engine in ((short, 0), (long, 1)):
        assert await env.query("s", f"EXECUTE put ({given})") == f"{given}\nINSERT 0 1"
        assert len(there) == engine
        same = await env.query(
            "s", f"SELECT t = {cell.replace('$1', given)} FROM long WHERE n = {given}"
        )
        assert same == "t\nSELECT 1"
    await env.query("s", "DEALLOCATE put; DROP TABLE long")


async def test_unused_argument_may_fail(env: TestEnvironment) -> None:
    await env.query("s", "CREATE TABLE guarded (t text)")
    cell = "CASE WHEN $1 = 0 THEN 'none' ELSE repeat('y', 10 / $1) END"
    await env.query("s", f"PREPARE guard AS INSERT INTO guarded VALUES ({cell}) RETURNING t")
    assert await env.query("s", "EXECUTE guard (5)") == "yy\nINSERT 0 1"
    assert await env.query("s", "EXECUTE guard (0)") == "none\nINSERT 0 1"
    await env.query("s", "PREPARE bare AS INSERT INTO guarded VALUES (repeat('y', 10 / $1))")
    assert await env.query("s", "EXECUTE bare (0)") == "ERROR 22012: division by zero"
    await env.query("s", "PREPARE huge AS INSERT INTO guarded VALUES (repeat('y', $1))")
    huge = await env.query("s", "EXECUTE huge (2000000000)")
    assert huge == "ERROR 54000: requested length too large"


@pytest.mark.parametrize("length", [3, 2_000_000])
async def test_long_values_beside_nextval(env: TestEnvironment, length: int) -> None:
    await env.query("s", "CREATE TABLE numbered (id serial, t text)")
    await env.query("s", "PREPARE n AS INSERT INTO numbered (t) VALUES (repeat('y', $1))")
    for _ in range(2):
        assert await env.query("s", f"EXECUTE n ({length})") == "INSERT 0 1"
    answer = await env.query("s", "SELECT id, length(t) FROM numbered ORDER BY id")
    assert answer == f"1|{length}\n2|{length}\nSELECT 2"
    await env.query("s", "DEALLOCATE n; DROP TABLE numbered")


async def test_query_of_arguments_only_with_long_values(env: TestEnvironment) -> None:
    await env.query("s", "PREPARE q AS SELECT length(repeat($1, $2))")
    assert await env.query("s", "EXECUTE q ('ab', 3)") == "6\nSELECT 1"
    assert await env.query("s", "EXECUTE q ('ab', 2000000)") == "4000000\nSELECT 1"


@pytest.mark.parametrize(
    "source",
    [
        "VALUES (mz_now())",
        "SELECT mz_now()",
        "SELECT DISTINCT mz_now() FROM generate_series(1, 99)",
    ],
)
async def test_mz_now_without_read_with_long_values(env: TestEnvironment, source: str) -> None:
    oracle = env.environment.coordinator.oracle
    await env.query("s", "CREATE TABLE IF NOT EXISTS moments (t mz_timestamp)")
    before = oracle.read_ts()
    answer = await env.query("s", f"INSERT INTO moments {source} RETURNING t")
    assert before <= int(answer.splitlines()[0]) <= oracle.read_ts()
    await env.query("s", "BEGIN; SELECT * FROM moments")
    in_block = (await env.query("s", "SELECT mz_now()")).splitlines()[0]
    await env.query("other", "INSERT INTO moments VALUES (1)")
    answer = await env.query("s", f"INSERT INTO moments {source} RETURNING t")
    assert answer.splitlines()[0] == in_block
    await env.query("s", "ROLLBACK")


@pytest.mark.parametrize(("length", "on_loop"), [(100, True), (100_000, False)])
async def test_keys_of_rows_with_long_values_are_found_on_a_thread(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, length: int, on_loop: bool
) -> None:
    by_key, threads = stage._by_key, list[int]()

    def noted(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return by_key(*args)

    monkeypatch.setattr(stage, "_by_key", noted)
    await own_env.ran(
        "s",
        "CREATE TABLE long (k int PRIMARY KEY, v text)",
        f"INSERT INTO long SELECT g, repeat('x', {length}) FROM generate_series(1, 100) g",
        "UPDATE long SET v = v || 'y'",
        "DELETE FROM long",
    )
    assert len(threads) == 3
    assert {each == threading.get_ident() for each in threads} == {on_loop}
