"""CREATE SOURCE ... FROM PYTHON ... OVER: a function is called once for each distinct row."""

import asyncio
import json
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from foreshore.storage import shard
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources import asking
from tests.adapter.sources.test_python import reaches as reached

MODULE = "tests.adapter.sources.asking"


async def reaches(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until a query has this row, a minute at most; else show the states of sources."""
    try:
        async with asyncio.timeout(60):
            await reached(env, query, expected)
    except TimeoutError:
        states = await env.query(
            "a", "SELECT name, status, error FROM mz_internal.mz_source_statuses"
        )
        raise AssertionError((await env.query("a", query), expected, states)) from None


async def allow(env: TestEnvironment) -> None:
    """Allow the module, as a start of the server does."""
    env.environment.let_import([MODULE])
    await env.environment.equip_sources()


def called(calls: Path) -> Counter[Any]:
    """Return how often the function was called for each row."""
    found: Counter[Any] = Counter()
    for line in calls.read_text().splitlines() if calls.exists() else []:
        each = json.loads(line)
        found.update(each if isinstance(each, list) else [each])
    return found


async def answers(env: TestEnvironment, query: str) -> list[str]:
    lines = (await env.query("a", query)).splitlines()  # perhaps with a notice at the end
    return list(takewhile(lambda line: not line.startswith("SELECT "), lines))


@pytest.mark.parametrize("function", ["answer", "together"])
async def test_view_over_answers_is_the_memo_over_deletes_kills_and_restarts(
    own_env: TestEnvironment, tmp_path: Path, function: str
) -> None:
    env, calls = own_env, tmp_path / "calls"
    env.environment.let_import([MODULE])
    options = "(CONCURRENCY 2, BATCH 5)" if function == "together" else "(CONCURRENCY 3)"
    await env.ran(
        "a",
        "CREATE TABLE q (n int)",
        "INSERT INTO q SELECT n FROM generate_series(1, 20) n, generate_series(1, 2)",
        f"CREATE SOURCE a (answer text NOT NULL) FROM PYTHON '{MODULE}:{function}'"
        f" (calls '{calls}') OVER q {options}",
        "CREATE MATERIALIZED VIEW v AS SELECT n, answer, count(*) FROM q JOIN a USING (n)"
        " GROUP BY n, answer",
    )
    memo: dict[str, str] = {}
    kills = 0
    for step in range(12):
        await env.ran("a", f"DELETE FROM q WHERE n % 7 = {step % 7}")
        await env.ran("a", f"INSERT INTO q SELECT n FROM generate_series({step}, {step + 25}) n")
        if step % 3 == 0:
            env.ingest.last.kill()
            kills += 1
        if step % 4 == 3:
            await env.reopen()
            await allow(env)
            kills += 1
        for row in await answers(env, "SELECT n, answer FROM a"):
            n, answer = row.split("|")
            assert memo.setdefault(n, answer) == answer, "an answer was computed again"
    await reaches(env, "SELECT count(*) FROM q WHERE n NOT IN (SELECT n FROM a)", "0")
    assert await answers(env, "SELECT n, answer FROM v ORDER BY n") == await answers(
        env, "SELECT DISTINCT n, answer FROM q JOIN a USING (n) ORDER BY n"
    )
    assert await answers(env, "SELECT n FROM a GROUP BY n HAVING count(*) > 1") == []
    extra = sum(called(calls).values()) - len(await answers(env, "SELECT n FROM a"))
    assert 0 <= extra <= kills * (10 if function == "together" else 3)


async def test_answers_are_forgotten_with_their_rows(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, calls = own_env, tmp_path / "calls"
    env.environment.let_import([MODULE])
    await env.ran(
        "a",
        "CREATE TABLE q (n int, text text)",
        "INSERT INTO q VALUES (1, 'a'), (1, 'a'), (2, NULL), (3, 'abc')",
        "CREATE SOURCE a (answer text, length int8)"
        f" FROM PYTHON '{MODULE}:slowly' (calls '{calls}') OVER q (FORGET)",
    )
    found = "SELECT string_agg(n || '-' || length, ' ' ORDER BY n) FROM a"
    await reaches(env, found, "1-1 2-0 3-3")
    first = await answers(env, "SELECT answer FROM a WHERE n = 1")
    await env.ran("a", "DELETE FROM q WHERE n > 1", "DELETE FROM q WHERE n = 1")
    await reaches(env, found, "NULL")
    await env.ran("a", "INSERT INTO q VALUES (1, 'a'), (1, 'a'), (4, 'x')")
    await reaches(env, found, "1-1 4-1")
    assert await answers(env, "SELECT answer FROM a WHERE n = 1") != first
    env.ingest.last.kill()
    await env.reopen()
    await allow(env)
    await env.ran("a", "DELETE FROM q WHERE n = 4", "INSERT INTO q VALUES (5, 'yz')")
    await reaches(env, found, "1-1 5-2")
    assert called(calls) == Counter({1: 2, 2: 1, 3: 1, 4: 1, 5: 1})
    shown = (await env.query("a", "SHOW CREATE SOURCE a")).splitlines()[0].split("|")[1]
    await env.ran("a", "DROP SOURCE a", shown)
    await reaches(env, found, "1-1 5-2")


async def test_read_waits_for_answers_with_real_time_recency(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, calls = own_env, tmp_path / "calls"
    monkeypatch.setattr(shard, "QUIET_SECONDS", 3600.0)  # for which nobody who waits has to wait
    await allow(env)
    function = f"FROM PYTHON '{MODULE}:answer' (calls '{calls}')"
    await env.ran(
        "a",
        "CREATE TABLE q (n int)",
        f"CREATE SOURCE a (answer text) {function} OVER q",
        f"CREATE SOURCE b (other text) {function} OVER a (FORGET)",
        "SET real_time_recency = on",
        "SET real_time_recency_timeout = '60s'",
    )
    for number in range(5):
        await env.ran("a", f"INSERT INTO q VALUES ({number})")
        found = "SELECT count(*) FROM q JOIN a USING (n) JOIN b USING (n, answer)"
        assert await answers(env, found) == [str(number + 1)]
    await env.ran("a", "INSERT INTO q VALUES (1)")
    assert await answers(env, "SELECT count(*) FROM b") == ["5"]


async def test_rows_that_fail_are_errors_and_the_others_go_on(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, calls = own_env, tmp_path / "calls"
    env.environment.let_import([MODULE])
    function = f"FROM PYTHON '{MODULE}:picky' (calls '{calls}')"
    await env.ran(
        "a",
        "CREATE TABLE q (n int)",
        "INSERT INTO q SELECT generate_series(1, 8)",
        f"CREATE SOURCE a (next int) {function} OVER q (RETRIES 0, TIMEOUT '50 ms')",
        f"CREATE SOURCE b (next int) {function}"
        " OVER q (RETRIES 1, TIMEOUT '50 ms', ERROR COLUMN 'why')",
    )
    await reaches(env, "SELECT string_agg(next::text, ' ' ORDER BY n) FROM a", "2 3 5 9")
    told = "SELECT string_agg(convert_from(data, 'utf8'), ' ' ORDER BY data) FROM a_errors"
    await reaches(env, told, "[3] [5] [6] [7]")
    assert "ValueError: not 3" in await env.query("a", "SELECT error FROM a_errors")
    failed = "SELECT string_agg(n::text, ' ' ORDER BY n) FROM b WHERE next IS NULL"
    await reaches(env, failed, "3 5 6 7")
    assert called(calls)[3] == 3, "once for a, twice for b"
    await env.reopen()
    await allow(env)
    await env.ran("a", "INSERT INTO q VALUES (10), (11)")
    await reaches(env, "SELECT string_agg(next::text, ' ' ORDER BY n) FROM a", "2 3 5 9 12")
    await reaches(env, told, "[10] [3] [5] [6] [7]")
    assert called(calls)[3] == 3, "errors are kept as answers are"
    status = "SELECT DISTINCT status FROM mz_internal.mz_source_statuses"
    assert await answers(env, status) == ["running"]


async def test_calls_in_flight_are_bounded_and_history_is_held(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, calls = own_env, tmp_path / "calls"
    asking.GATE.clear()
    env.environment.let_import([MODULE])
    await env.ran(
        "a",
        "CREATE TABLE q (n int)",
        "INSERT INTO q SELECT generate_series(1, 50)",
        f"CREATE SOURCE a (m int) FROM PYTHON '{MODULE}:gated' (calls '{calls}')"
        " OVER q (CONCURRENCY 4)",
    )
    while sum(called(calls).values()) < 4:
        await reaches(env, "SELECT count(*) FROM a", "0")
    env.ingest.last.kill()
    await env.ran("a", "DELETE FROM q WHERE n <= 25", "INSERT INTO q VALUES (51)")
    assert "2BP01" in await env.query("a", "DROP SUBSCRIPTION a_input")
    assert "42809" in await env.query("a", "ALTER SUBSCRIPTION a_input ADVANCE TO mz_now()")
    assert "2BP01" in await env.query("a", "DROP TABLE q")
    assert "2BP01" in await env.query("a", "ALTER TABLE q ADD COLUMN x int")
    await env.reopen()
    await allow(env)
    asking.GATE.set()
    await reaches(env, "SELECT count(*), sum(m) FROM a", f"51|{51 * 52 // 2}")
    assert sum(called(calls).values()) <= 51 + 2 * 4
    moved = "SELECT position > 0 FROM mz_subscriptions WHERE name = 'a_input'"
    assert await answers(env, moved) == ["t"]
    await env.ran("a", "DROP TABLE q CASCADE")
    assert "42P01" in await env.query("a", "SELECT * FROM a")
    assert await answers(env, "SELECT count(*) FROM mz_subscriptions") == ["0"]


async def test_values_have_the_types_of_python(own_env: TestEnvironment) -> None:
    env = own_env
    env.environment.let_import([MODULE])
    await env.ran(
        "a",
        "CREATE TABLE q (a int, b numeric, c numeric(5, 2), d text, e jsonb, f timestamptz,"
        " g date, h float8, i bool, j int[], k uuid, l bytea)",
        "INSERT INTO q VALUES (1, 1.50, 2, 'x', '{\"a\": [1]}', now(), now(), 1.5, true,"
        " '{1}', gen_random_uuid(), 'x')",
        f"CREATE SOURCE a (types text) FROM PYTHON '{MODULE}:kinds' OVER q",
    )
    kinds = "int Decimal Decimal str dict datetime date float bool list str bytes"
    await reaches(env, "SELECT types FROM a", kinds)
    assert (await env.query("a", "SELECT b, e FROM a")).startswith('1.50|{"a": [1]}')


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("(x int) FROM PYTHON 'os:getcwd' OVER q", "42501"),
        (f"(x int) FROM PYTHON '{MODULE}:answer' OVER q", "22023: function"),
        (f"(n int) FROM PYTHON '{MODULE}:kinds' OVER q", "42701"),
        (f"FROM PYTHON '{MODULE}:kinds' OVER q", "22023"),
        (f"(x int) FROM PYTHON '{MODULE}:kinds' OVER nowhere", "42P01"),
        (f"(x int) FROM PYTHON '{MODULE}:kinds' OVER plain", "42809"),
        (f"(x int) FROM PYTHON '{MODULE}:kinds' OVER q (CONCURRENCY 0)", "22023"),
        (f"(x int) FROM PYTHON '{MODULE}:kinds' OVER q (SPEED 1)", "42601"),
        (f"(x int NOT NULL) FROM PYTHON '{MODULE}:kinds' OVER q (ERROR COLUMN 'e')", "22023"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    env: TestEnvironment, source: str, error: str
) -> None:
    env.environment.let_import([MODULE])
    await env.query("a", "CREATE TABLE IF NOT EXISTS q (n int)")
    await env.query("a", "CREATE OR REPLACE VIEW plain AS SELECT 1 AS n FROM q")
    assert f"ERROR {error}" in await env.query("a", f"CREATE SOURCE a {source}")
