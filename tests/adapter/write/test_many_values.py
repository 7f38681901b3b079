"""VALUES with many rows that are not constants: numbered in order, all or none."""

import pytest

from tests.adapter.harness import TestEnvironment

SETUP = "CREATE TABLE t (k serial PRIMARY KEY, v int, w text CHECK (w <> 'bad'))"


@pytest.mark.parametrize("count", [1, 200, 300, 5000])
async def test_many_values_are_numbered_in_order(own_env: TestEnvironment, count: int) -> None:
    await own_env.query("s", SETUP)
    rows = ", ".join(f"({i} + length(current_user), current_user)" for i in range(count))
    told = await own_env.query("s", f"INSERT INTO t (v, w) VALUES {rows} RETURNING k, v - 9, w")
    expected = [f"{i + 1}|{i}|foreshore" for i in range(count)]
    assert told.splitlines() == [*expected, f"INSERT 0 {count}"]
    rows = ", ".join(f"({i + 1}, length(current_user))" for i in range(count + 1))
    upsert = f"INSERT INTO t (k, v) VALUES {rows} ON CONFLICT (k) DO UPDATE SET v = excluded.k"
    assert await own_env.query("s", upsert) == f"INSERT 0 {count + 1}"
    told = await own_env.query("s", "SELECT count(*), count(w), min(v - k), max(v - k) FROM t")
    low, high = sorted((0, 8 - count))  # of what is new
    assert told == f"{count + 1}|{count}|{low}|{high}\nSELECT 1"


@pytest.mark.parametrize("count", [10, 1000])
async def test_invalid_row_fails_whole_insert(own_env: TestEnvironment, count: int) -> None:
    await own_env.query("s", SETUP)
    for last, told in (
        ("1 / (length(current_user) - 9), ''", "division by zero"),
        ("1, replace(current_user, 'foreshore', 'bad')", "violates check constraint"),
        ("1, NULL), (1, current_user::int::text", "invalid input syntax for type integer"),
    ):
        rows = ", ".join([*["(length(current_user), current_user)"] * count, f"({last})"])
        said = await own_env.query("s", f"INSERT INTO t (v, w) VALUES {rows}", alone=False)
        assert told in said, said
    assert await own_env.query("s", "SELECT count(*) FROM t") == "0\nSELECT 1"


@pytest.mark.parametrize("count", [2, 40, 9000])
async def test_many_values_of_arguments_are_written_in_order(
    own_env: TestEnvironment, count: int
) -> None:
    await own_env.query("s", SETUP)
    pairs = ", ".join(f"(${2 * i + 1}, ${2 * i + 2}::text)" for i in range(count))
    texts = ["NULL" if i % 2 else f"'w{i}'" for i in range(count)]
    args = ", ".join(f"{i}, {text}" for i, text in enumerate(texts))

    async def told(sql: str, args: str) -> list[str]:
        answer = await own_env.query("s", f"PREPARE p AS {sql}; EXECUTE p ({args}); DEALLOCATE p")
        return answer.splitlines()[1:-1]

    rows = await told(f"INSERT INTO t (v, w) VALUES {pairs} RETURNING k - v, w", args)
    assert rows[:-1] == [f"1|{text.strip(chr(39))}" for text in texts]
    upsert = f"INSERT INTO t (k, w) VALUES {pairs} ON CONFLICT (k) DO UPDATE SET v = -1"
    assert await told(upsert, args) == [f"INSERT 0 {count}"]
    changed = f"UPDATE t SET w = x.w FROM (VALUES {pairs}) AS x (k, w) WHERE t.k = x.k::int"
    assert await told(changed, args) == [f"UPDATE {count}"]
    listed = ", ".join(f"${i + 1}" for i in range(count))
    deleted = await told(f"DELETE FROM t WHERE k IN ({listed})", ", ".join(map(str, range(count))))
    assert deleted == [f"DELETE {count}"]
    assert await own_env.query("s", "SELECT min(k), max(k) FROM t") == f"{count}|{count}\nSELECT 1"


@pytest.mark.parametrize(
    ("type", "literal", "setting"),
    [
        ("timestamptz", "'10:00 2024-01-15'", "TimeZone = 'Europe/Berlin'"),  # it names no zone
        ("timestamptz", "'2024-01-15 10:00'", "TimeZone = 'Europe/Berlin'"),
        ("timestamptz", "'2024-01-15 10:00+05'", "TimeZone = 'Europe/Berlin'"),
        ("timestamp", "'2024-01-01 00:00:00.7'::timestamp(0)", "datestyle = 'ISO'"),
        ("time", "'10:00:00.7'::time(0)", "datestyle = 'ISO'"),
        ("date", "'2024-01-01 23:00:00'::timestamp", "datestyle = 'ISO'"),
        ("numeric(10, 2)", "'1.555'::numeric(10, 1)", "datestyle = 'ISO'"),
        ("text", "'abc  '::char(8)", "datestyle = 'ISO'"),
    ],
)
async def test_a_literal_means_the_same_in_many_rows(
    own_env: TestEnvironment, type: str, literal: str, setting: str
) -> None:
    found = []
    for count in (1, 200):
        await own_env.query("s", f"CREATE TABLE v{count} (i int, v {type}); SET {setting}")
        rows = ", ".join(f"({i}, {literal})" for i in range(count))
        await own_env.ran("s", f"INSERT INTO v{count} VALUES {rows}")
        found.append(await own_env.query("s", f"SELECT DISTINCT v FROM v{count}"))
    assert found[0] == found[1]
