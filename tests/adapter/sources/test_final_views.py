"""Views with EMIT ON WINDOW CLOSE against their definition, by random writes of two streams."""

from collections import Counter
from datetime import datetime, timedelta
from random import Random

import pytest

from foreshore.compute.flow import hydration, ordered
from foreshore.compute.flow.operators import closed_groups
from tests.adapter.harness import TestEnvironment

A, B = "TUMBLE(a, at, interval '10 s')", "TUMBLE(b, at, interval '10 s')"
HOPS = "HOP(a, at, interval '5 s', interval '15 s')"
COUNTED = f"(SELECT window_end AS e, count(*) AS n FROM {A} GROUP BY 1)"
SUMMED = f"(SELECT window_end AS e, k, sum(v) AS s FROM {B} GROUP BY 1, 2)"
BINS = "SELECT date_bin('{}', at, '2020-01-01') AS e, count(*) AS n FROM {} GROUP BY 1"
SHORT, LONG = BINS.format("10 s", "a"), BINS.format("20 s", "b")
PASSED_A = "{} <= (SELECT max(at) FILTER (WHERE isfinite(at)) - interval '5 s' FROM a)"
PASSED_B = "{} <= (SELECT max(at) FILTER (WHERE isfinite(at)) FROM b)"
ENDS_A, BOTH = PASSED_A.format("e"), f"{PASSED_A.format('e')} AND {PASSED_B.format('e')}"
LENGTHS = " AND ".join(
    (PASSED_A.format("e + interval '10 s'"), PASSED_B.format("e + interval '20 s'"))
)
MONTH = PASSED_A.format("e - interval '30 days' + interval '1 month'")
SOON_B = PASSED_B.format("e + interval '20 s'")
VIEWS = {  # the query, whose column e says when a row is final, and which rows are
    "windows": (
        f"SELECT window_end AS e, k, max(v), count(DISTINCT v) FROM {A} GROUP BY 1, 2",
        ENDS_A,
    ),
    "hops": (f"SELECT window_end AS e, min(v) FROM {HOPS} GROUP BY 1", ENDS_A),
    "months": (
        "SELECT date_trunc('month', at) + interval '30 days' AS e, count(*) FROM a GROUP BY 1",
        MONTH,
    ),
    "numbered": (
        "SELECT * FROM (SELECT window_end AS e, k, v, row_number()"
        f" OVER (PARTITION BY window_end ORDER BY v, k) AS r FROM {A}) WHERE r <= 2",
        ENDS_A,
    ),
    "except": (
        f"SELECT window_end AS e, k FROM {A} EXCEPT ALL SELECT window_end, k FROM {B}",
        BOTH,
    ),
    "left": (f"SELECT x.e, n, k, s FROM {COUNTED} x LEFT JOIN {SUMMED} y ON x.e = y.e", BOTH),
    "rows": (
        f"SELECT x.window_end AS e, x.v AS a, y.v AS b FROM {A} x JOIN {B} y"
        " ON x.window_end = y.window_end AND x.k = y.k",
        BOTH,
    ),
    "either": (
        f"SELECT coalesce(x.e, y.e) AS e, n, k, s FROM {COUNTED} x FULL JOIN {SUMMED} y"
        " ON x.e = y.e",
        BOTH,
    ),
    "within": (
        "SELECT a.at AS e, a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k"
        " AND b.at BETWEEN a.at - interval '7 s' AND a.at + interval '20 s'",
        f"isfinite(e) AND {ENDS_A} AND {SOON_B}".replace("<=", "<"),
    ),
    "sessions": (
        "SELECT window_end AS e, k, count(*), min(v) FROM SESSION(TABLE a PARTITION BY k,"
        " DESCRIPTOR(at), INTERVAL '9 s') GROUP BY 1, 2",
        ENDS_A.replace("<=", "<"),
    ),
    "missing": (
        f"SELECT * FROM {COUNTED} x WHERE NOT EXISTS (SELECT FROM {SUMMED} y WHERE x.e = y.e)",
        BOTH,
    ),
    "lengths": (
        f"SELECT x.e, x.n, y.n AS m FROM ({SHORT}) x LEFT JOIN ({LONG}) y ON x.e = y.e",
        LENGTHS,
    ),
}


def insert(random: Random, stream: str, second: int) -> str:
    """Return the INSERT of a row of about a second after a time."""
    at = datetime(2020, 1, 30, 23, 58) + timedelta(
        seconds=second + random.randint(-6, 3), microseconds=random.choice((0, 1, 999_999))
    )
    time = random.choice(("NULL", "'infinity'")) if random.random() < 0.1 else f"'{at}'"
    key = random.choice(("NULL", "0", "1"))
    return f"INSERT INTO {stream} (at, k, v) VALUES ({time}, {key}, {random.randint(0, 3)})"


async def rows(env: TestEnvironment, query: str) -> Counter[str]:
    """Return the rows of a query, each as often as it has it."""
    found = await env.query("s", query)
    assert not found.startswith("ERROR"), (query, found)
    return Counter(found.splitlines()[:-1])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2))
async def test_views_have_final_rows_and_keep_them(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(closed_groups, "LEAST_TO_FORGET", 1)
    monkeypatch.setattr(ordered, "EAGER", 4)
    if seed % 2:
        monkeypatch.setattr(hydration, "BULK_ROWS", 1)
    env, random = own_env, Random(seed)
    await env.ran(
        "s",
        "CREATE TABLE a (at timestamp, k int, v int, WATERMARK FOR at AS at - INTERVAL '5 s')",
        "CREATE TABLE b (k int, at timestamp, v int, WATERMARK FOR at AS at)",
    )
    second, before, late = {"a": 0, "b": 0}, dict[str, Counter[str]](), 0
    for step in range(14):
        if step in (0, 7):  # those of the second round begin with rows
            for name, (query, _) in VIEWS.items():
                emit = "WITH (EMIT ON WINDOW CLOSE)"
                await env.ran("s", f"CREATE MATERIALIZED VIEW {name}{step} {emit} AS {query}")
                before[f"{name}{step}"] = Counter()
        for _ in range(random.randint(2, 8)):
            stream = random.choice("ab")
            second[stream] += random.choice((0, 0, 3, 10, 30, 86_400))
            found = await env.query("s", insert(random, stream, second[stream]))
            late += found.startswith("ERROR 23514")
        if step in (4, 10):
            await env.reopen()
        for view, earlier in before.items():
            query, final = VIEWS[view.rstrip("0123456789")]
            shown = await rows(env, f"SELECT * FROM {view}")
            assert shown == await rows(env, f"SELECT * FROM ({query}) q WHERE {final}"), view
            assert earlier <= shown, view
            before[view] = shown
    assert late
    assert before["windows0"]
    assert before["lengths7"]
