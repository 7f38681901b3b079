"""Rows of values agree with the evaluation of their plan, for all column types."""

import pyarrow as pa

from foreshore.adapter.read.bound.bind import bind_peek
from foreshore.compute.local.linear import evaluate_linear
from foreshore.few_updates import FewUpdates
from foreshore.sql.plan import Insert
from foreshore.sql.rewrite.values_template import template_of
from foreshore.table_rows import TableRows, updates_at
from foreshore.types import Datum
from foreshore.update import DIFF, TIME
from tests.adapter.harness import TestEnvironment

TABLE = """CREATE TABLE t (
    i int2, j int4, k int8, f float4, g float8, b bool, s text, v varchar(5), c char(3),
    n numeric(10, 2), m numeric, d date, z timestamptz DEFAULT now(), y bytea, u uuid,
    p interval, o jsonb, a int[])"""

STATEMENTS: list[tuple[str, tuple[Datum, ...]]] = [
    ("INSERT INTO t (i, j, s) VALUES (1, 2, 'x')", ()),
    ("INSERT INTO t (i, j, s) VALUES (1, 2, 'x'), (NULL, -7, NULL)", ()),
    ("INSERT INTO t (i, j, k) VALUES ($1, $2, $3), ($3, $2 + 1, $1)", (1, 2, 3)),
    ("INSERT INTO t (f, g, b) VALUES ($1, $2, $3)", (1.5, -0.0, True)),
    ("INSERT INTO t (s, v, c) VALUES ($1, $2, $3)", ("long enough", "abc", "x")),
    ("INSERT INTO t (n, m) VALUES ($1, $1), (1.005, 1e10), (NULL, 0.10)", ("12.345",)),
    ("INSERT INTO t (d, y, u) VALUES ('2013-01-01', '\\x00ff', '{0}')", ()),
    ("INSERT INTO t (p, o, a) VALUES ('1 month 2 days', '{\"a\": 1}', '{1,NULL,3}')", ()),
    ("INSERT INTO t (j) SELECT 4", ()),
    ("INSERT INTO t DEFAULT VALUES", ()),
]


async def test_values_agree_with_plan(own_env: TestEnvironment) -> None:
    assert await own_env.query("a", TABLE) == "CREATE TABLE"
    session = await own_env.session("a")
    for text, args in STATEMENTS:
        sql = text.replace("{0}", "6b7c0e0e-0000-4000-8000-000000000001")
        prepared = await session.extended.parse("", sql, ())
        assert prepared.made.programs.template is not None, sql
        assert prepared.made.peek is not None
        assert isinstance(prepared.made.plan, Insert)
        context = session.context(prepared, (args,))
        bound = await bind_peek(context, prepared.made.peek, 0)
        desc = session.planner.reader().planned[prepared.made.plan.table].desc
        template = prepared.made.programs.template
        rows = template.rows(template.givens.values(args, context.session_value(0)))
        given, expected = (
            TableRows(desc, rows).table,
            evaluate_linear(bound.block.relation),
        )
        assert given.num_rows == len(rows)
        for column, wanted in zip(given.columns, expected.columns, strict=True):
            assert column.combine_chunks().equals(wanted.combine_chunks()), sql
        updates = updates_at([TableRows(desc, rows), TableRows(desc, rows)], 7)
        updates = updates.table if isinstance(updates, FewUpdates) else updates
        assert updates[TIME].to_pylist() == [7] * 2 * len(rows)
        assert updates.drop_columns([TIME]).equals(pa.concat_tables([given, given]))
        assert set(updates[DIFF].to_pylist()) == {1}
        await session.transactions.rollback()


async def test_non_values_source_has_no_template(own_env: TestEnvironment) -> None:
    await own_env.query("a", TABLE)
    session = await own_env.session("a")
    for sql in (
        "INSERT INTO t (j) SELECT j FROM t",
        "INSERT INTO t (j) SELECT 1 WHERE $1",
        "INSERT INTO t (j) SELECT * FROM generate_series(1, 3)",
        f"INSERT INTO t (j, z) VALUES (1, now()), {', '.join(['(2, NULL)'] * 300)}, (3, now())",
    ):
        prepared = await session.extended.parse("", sql, ())
        assert prepared.made.programs.template is None, sql
        assert prepared.made.peek is not None
        assert template_of(prepared.made.peek.query.relation) is None
