"""Lists, maps and unsigned integers: in tables, maintained views and indexes."""

import pytest

from tests.adapter.harness import TestEnvironment


async def _one(env: TestEnvironment, expression: str) -> str:
    answer = await env.query("a", f"SELECT {expression}")
    return answer.rsplit("\nSELECT", 1)[0]


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("LIST[1, 2, 3][2]", "2"),
        ("LIST[1, 2, 3][2:]::text", "{2,3}"),
        ("LIST[[1], [2, 3]][2][1]", "2"),
        ("(LIST[[1, NULL], []] :: int list list)::text", "{{1,NULL},{}}"),
        ("(LIST[1] || 2)::text || (0 || LIST[1])::text || (LIST[1] || LIST[2])::text", "{1,2}{0,1}{1,2}"),
        ("list_length(LIST[1, NULL]), list_length_max(LIST[[1], [2, 3]], 2)", "2|2"),
        ("list_remove(LIST[1, 2, 1], 1)::text, list_n_layers(LIST[[1]])", "{2}|2"),
        ("2 = ANY (LIST[1, 2]), LIST[1, 2] @> LIST[2]", "t|t"),
        ("'{1.5}'::numeric list::text list::text", "{1.5}"),
        ("MAP['b' => 2, 'a' => 1]::text, MAP['a' => 1] -> 'a'", "{a=>1,b=>2}|1"),
        ("MAP['a' => ['b' => 'c']]::text", "{a=>{b=>c}}"),
        ("'{a=>1}'::map[text=>int] ? 'a', '{a=>1, b=>2}'::map[text=>int] @> '{a=>1}'", "t|t"),
        ("map_build(LIST[ROW('a', 1), ROW('b', 2)])::text", "{a=>1,b=>2}"),
        ("pg_typeof(LIST[1]), pg_typeof(MAP['a' => 1.5]), pg_typeof(1::uint8)",
         "integer list|map[text=>numeric]|uint8"),
        ("65535::uint2 + 1::uint4, 7::uint8 / 2::uint8, ~1::uint2, 5::uint8 & 4::uint8", "65536|3|65534|4"),
        ("18446744073709551615::uint8::numeric + 1", "18446744073709551616"),
        ("to_jsonb(LIST[1, NULL]), to_jsonb(MAP['a' => ROW(1, 'x')])",
         '[1, null]|{"a": {"f1": 1, "f2": "x"}}'),
        ("timezone_offset('america/new_york', '2023-06-01 00:00+00')", "(EDT,-05:00:00,01:00:00)"),
        ("(timezone_offset('Europe/Vienna', '2023-11-05')).abbrev", "CET"),
        ("timezone_offset('Europe/Vienna', '2023-11-05').abbrev", "CET"),
        ("string_agg(date_bin_hopping::text, ',') FROM date_bin_hopping('45s', '1m', '2001-01-01 00:01:20')",
         "2001-01-01 00:00:30+00,2001-01-01 00:01:15+00"),
        ("count(*), min(w) FROM date_bin_hopping('5m', '10m', timestamp '2021-01-01 01:05') AS w",
         "2|2021-01-01 01:00:00"),
        ("key || value FROM unnest('{b=>2,a=>1}'::map[text=>int]) ORDER BY key", "a1\nb2"),
        ("unnest('{a=>NULL}'::map[text=>int])", "(a,)"),
        ("* FROM unnest(MAP['a' => LIST[1]])", "a|{1}"),
        ("arg_max(x, y), min_by(x, y), any_value(x), approx_count_distinct(y) "
         "FROM (VALUES ('b', 3), ('a', 1), ('c', 3), (NULL, NULL)) AS t (x, y)", "b|a|a|2"),
        ("count(*) FROM date_bin_hopping('1 h', '1 m', timestamp '2021-01-01 01:05')", "0"),
    ],
)  # fmt: skip
async def test_expressions(env: TestEnvironment, expression: str, answer: str) -> None:
    assert await _one(env, expression) == answer


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("65535::uint2 + 1::uint2", '"65535 + 1" uint2 out of range'),
        ("-1::uint4", '"-1" uint4 out of range'),
        ("1::uint8 / 0::uint8", "division by zero"),
        ("LIST[1, LIST[2]]", "LIST types integer and integer list cannot be matched"),
        ("timezone_offset('PST', now())", "invalid IANA Time Zone Database identifier: 'PST'"),
        ("* FROM date_bin_hopping('0', '1m', '2001-01-01')", "hop must be greater than zero"),
        ("LIST[]", "cannot determine type of empty list"),
        ("list_length_max(LIST[1], 2)", "invalid layer: 2"),
        ("'{a=>1}'::map[int=>int]", "map key type must be text"),
        ("LIST[1] = LIST['a']", "operator does not exist: integer list = text list"),
    ],
)
async def test_errors(env: TestEnvironment, expression: str, error: str) -> None:
    assert error in await env.query("a", f"SELECT {expression}")


async def test_views_over_lists_maps_and_unsigned_integers_are_maintained(
    env: TestEnvironment,
) -> None:
    await env.ran(
        "a",
        "CREATE TYPE ints AS LIST (ELEMENT TYPE = int4)",
        "CREATE TYPE counts AS MAP (KEY TYPE = text, VALUE TYPE = uint4)",
        "CREATE TABLE t (id int PRIMARY KEY, l ints, m counts, u uint8)",
        "INSERT INTO t VALUES (1, '{1,2}', '{a=>1}', 5), (2, LIST[3], NULL, 18446744073709551615)",
        "CREATE MATERIALIZED VIEW v AS SELECT l, count(*), sum(u), max(u) FROM t GROUP BY l",
        "CREATE MATERIALIZED VIEW g AS SELECT list_agg(id ORDER BY id) AS ids,"
        " map_agg(id::text, u) AS us FROM t",
        "CREATE INDEX i ON t (l, u)",
    )
    before = await env.query("a", "SELECT * FROM v ORDER BY l")
    assert before == "{1,2}|1|5|5\n{3}|1|18446744073709551615|18446744073709551615\nSELECT 2"
    await env.ran("a", "UPDATE t SET l = '{1,2}', u = 6 WHERE id = 2", "INSERT INTO t VALUES (3)")
    after = await env.query("a", "SELECT * FROM v ORDER BY l")
    assert after == "{1,2}|2|11|6\nNULL|1|NULL|NULL\nSELECT 2"
    assert await env.query("a", "SELECT * FROM g") == "{1,2,3}|{1=>5,2=>6,3=>NULL}\nSELECT 1"
    found = await env.query("a", "SELECT id FROM t WHERE l = '{1,2}' AND u = 6")
    assert found == "2\nSELECT 1"
    await env.reopen()
    assert await env.query("b", "SELECT * FROM v ORDER BY l") == after
    assert "ints" in await env.query("b", "SHOW CREATE TABLE t")
