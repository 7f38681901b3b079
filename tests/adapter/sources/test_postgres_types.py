"""Columns of many types have the values that they have upstream, in snapshots and in changes."""

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.replicated import SOURCE, Upstream, rows_of, until
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream

BUILT_IN = {
    "smallint": ("'-32768'", "'7'"),
    "real": ("'NaN'", "'1.5e-10'"),
    "double precision": ("'-Infinity'", "'0.1'"),
    "numeric": ("'NaN'", "'12345678901234567890.000'"),
    "numeric(5,2)": ("'1.50'", "'-0.05'"),
    "boolean": ("'t'", "'f'"),
    "bytea": ("'\\x00ff'", "''"),
    "char(5)": ("'ab'", "''"),
    "varchar(3)": ("'äöü'", "''"),
    "date": ("'0044-03-15 BC'", "'infinity'"),
    "time": ("'23:59:59.999999'", "'24:00:00'"),
    "timetz": ("'12:00:00+05:30'", "'00:00:00-12'"),
    "timestamp": ("'2024-02-29 12:34:56.789'", "'-infinity'"),
    "timestamptz": ("'2024-02-29 12:34:56.789+03'", "'infinity'"),
    "interval": ("'1 mon -2 days 03:04:05.6'", "'-1 year'"),
    "uuid": ("'00000000-0000-0000-0000-0000000000ff'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "json": ('\'{"b": 1,  "a": [null]}\'', "'3'"),
    "jsonb": ('\'{"b": 1, "a": [null]}\'', "'\"x\"'"),
    "inet": ("'10.1.2.3/8'", "'::1'"),
    "cidr": ("'10.0.0.0/8'", "'2001:db8::/32'"),
    "bit(3)": ("B'101'", "B'000'"),
    "varbit": ("B'1'", "B''"),
    "money": ("'12.34'", "'-0.01'"),
    "int[]": ("'{1,NULL,3}'", "'{}'"),
    "int[][]": ("'{{1,NULL},{3,4}}'", "'[2:3][1:2]={{1,2},{3,4}}'"),
    "text[]": ('\'{a,"b,c","\\"",NULL,"NULL"}\'', "'{}'"),
    "int4range": ("'[1,5)'", "'empty'"),
    "numrange": ("'(1.5,]'", "'[,2]'"),
    "tstzrange": ("'[2024-01-01 00:00:00+00,2024-02-01 00:00:00+00)'", "'empty'"),
    "daterange": ("'[2024-01-01,2024-01-31]'", "'empty'"),
}
MADE = """
CREATE TYPE up.mood AS ENUM ('sad', 'it''s "fine"');
CREATE DOMAIN up.positive AS int CHECK (value > 0);
CREATE TYPE up.pair AS (a int, b text);
CREATE TYPE up.moods AS RANGE (subtype = float8);
CREATE TABLE up.m (id int PRIMARY KEY, e up.mood, d up.positive, c up.pair, r up.moods, es up.mood[], p point,
    x xml, n int GENERATED ALWAYS AS (id * 2) STORED, i int GENERATED ALWAYS AS IDENTITY);
ALTER TABLE up.m REPLICA IDENTITY FULL;
INSERT INTO up.m VALUES (1, 'sad', 5, ROW(1, 'x,"y'), '[1.5,2]', '{sad,NULL}', '(1,2)', '<a/>');
ALTER PUBLICATION p SET TABLE up.m;
"""


async def test_built_in_types_have_the_same_texts(env: TestEnvironment, upstream: Upstream) -> None:
    columns = ", ".join(f"c{i} {type}" for i, type in enumerate(BUILT_IN))
    upstream.execute(f"CREATE TABLE up.k (id int PRIMARY KEY, {columns})".encode())
    upstream.execute("ALTER TABLE up.k REPLICA IDENTITY FULL")
    upstream.execute("ALTER PUBLICATION p SET TABLE up.k")
    first, second = (", ".join(each) for each in zip(*BUILT_IN.values(), strict=True))
    upstream.execute(f"INSERT INTO up.k VALUES (1, {first}), (2, {second})".encode())
    upstream.execute("INSERT INTO up.k (id) VALUES (3)")
    await env.ran("a", SOURCE)
    upstream.execute("SET timezone = 'UTC'")
    texts = ", ".join(f"c{i}::text" for i in range(len(BUILT_IN)))
    every = f"SELECT id, {texts} FROM {{}} ORDER BY id"
    await until(env, every.format("k"), rows_of(upstream, every.format("up.k")))
    upstream.execute(f"INSERT INTO up.k VALUES (11, {first}), (12, {second})".encode())
    upstream.execute("DELETE FROM up.k WHERE id < 4")
    await until(env, every.format("k"), rows_of(upstream, every.format("up.k")))
    count = "SELECT count(*) FROM k"
    upstream.execute("DELETE FROM up.k")
    await until(env, count, "0")


async def test_made_types_are_read_as_text_and_generated_columns_left_out(
    env: TestEnvironment, upstream: Upstream
) -> None:
    upstream.execute(MADE)
    left: list[str] = []
    for _ in range(8):  # one column after the other is told, with what helps
        listed = ", ".join(f"up.m.{each}" for each in left)
        options = f", TEXT COLUMNS ({listed})" if left else ""
        said = await env.query("a", SOURCE.replace("'p'", f"'p'{options}"))
        if "ERROR" not in said:
            break
        assert "TEXT COLUMNS (up.m." in said, said
        left.append(said.split('column "')[1].split('"')[0])
    assert set(left) == {"e", "d", "c", "r", "es", "p", "x"}, said
    names = "id, e, d, c, r, es, p, x, i"
    every = "SELECT id, e::text, d::text, c::text, r::text, es::text, p::text, x::text, i FROM {}"
    order = " ORDER BY id"
    await until(env, every.format("m") + order, rows_of(upstream, every.format("up.m") + order))
    shown = await env.query("a", "SELECT * FROM m LIMIT 0")
    assert shown is not None
    attributes = "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute"
    named = f"{attributes} WHERE attrelid = 'm'::regclass AND attnum > 0"
    assert (await env.query("a", named)).startswith(f"{names}\n")
    upstream.execute("UPDATE up.m SET e = 'it''s \"fine\"', c = ROW(NULL, ''), d = 9")
    upstream.execute("INSERT INTO up.m (id) VALUES (2)")
    await until(env, every.format("m") + order, rows_of(upstream, every.format("up.m") + order))
    upstream.execute("ALTER TYPE up.mood ADD VALUE 'new'")
    upstream.execute("UPDATE up.m SET e = 'new' WHERE id = 2")
    await until(env, "SELECT e FROM m WHERE id = 2", "new")


@pytest.mark.parametrize("type", ["macaddr", "oid", "tsvector", "pg_lsn", "int4multirange", "name"])
async def test_type_that_is_not_supported_is_told_or_read(
    env: TestEnvironment, upstream: Upstream, type: str
) -> None:
    upstream.execute(f"CREATE TABLE up.u (id int PRIMARY KEY, c {type})".encode())
    upstream.execute("ALTER TABLE up.u REPLICA IDENTITY FULL")
    upstream.execute("ALTER PUBLICATION p SET TABLE up.u")
    said = await env.query("a", SOURCE)
    if "ERROR" in said:
        assert "TEXT COLUMNS (up.u.c)" in said, said
        await env.ran("a", SOURCE.replace("'p'", "'p', TEXT COLUMNS (up.u.c)"))
    upstream.execute("INSERT INTO up.u VALUES (1, NULL)")
    await until(env, "SELECT count(*) FROM u", "1")
