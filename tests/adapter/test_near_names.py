"""Errors for names that do not exist say which may be meant, by PostgreSQL's rules for columns."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.near_names import distance, nearest
from tests.adapter.harness import TestEnvironment, in_environment
from tests.effort import examples

COLUMN = 'HINT: Perhaps you meant to reference the column "{}".'
EITHER = 'HINT: Perhaps you meant to reference the column "{}" or the column "{}".'
# PostgreSQL 15's hints.
HINTS = {
    "SELECT amout FROM orders": COLUMN.format("orders.amount"),
    "SELECT orders.amout FROM orders": COLUMN.format("orders.amount"),
    "SELECT o.amont FROM orders o": COLUMN.format("o.amount"),
    "SELECT o.nte FROM orders o": "",
    "SELECT zzz FROM orders": "",
    "SELECT abf FROM three": "",
    "SELECT three.abf FROM three": "",
    "SELECT abf FROM two": EITHER.format("two.abc", "two.abd"),
    "SELECT ab FROM two": EITHER.format("two.abc", "two.abd"),
    "SELECT aount FROM orders o, orders p": EITHER.format("o.amount", "p.amount"),
    "SELECT (SELECT amoun FROM two) FROM orders": COLUMN.format("orders.amount"),
    "SELECT amoun FROM (SELECT amount FROM orders) s(amoung)": COLUMN.format("s.amoung"),
    "SELECT amout FROM orders GROUP BY amount": COLUMN.format("orders.amount"),
    "SELECT id FROM orders WHERE amout > 2 ORDER BY id": COLUMN.format("orders.amount"),
    "WITH c AS (SELECT 1 AS amount) SELECT amoun FROM c": COLUMN.format("c.amount"),
    "SELECT a.abf FROM two a JOIN two b ON a.abc = b.abc": EITHER.format("a.abc", "a.abd"),
    "DELETE FROM orders WHERE amout = 1": COLUMN.format("orders.amount"),
    "INSERT INTO keyed VALUES (1) ON CONFLICT (idd) DO NOTHING": COLUMN.format("keyed.id"),
    "INSERT INTO keyed VALUES (1) ON CONFLICT (id, nam) DO NOTHING": COLUMN.format("keyed.name"),
    "INSERT INTO keyed AS k VALUES (1) ON CONFLICT (idd) DO NOTHING": COLUMN.format("k.id"),
    "INSERT INTO keyed VALUES (1) ON CONFLICT (iddddd) DO NOTHING": "",
    # PostgreSQL has no hints for these.
    **{
        f"SELECT {name}(1)": f'HINT: Perhaps you meant to call the function "{meant}".'
        for name, meant in {
            "avgg": "avg",
            "countt": "count",
            "row_numbr": "row_number",
            "first_valu": "first_value",
            "percentile_con": "percentile_cont",
            "greatst": "greatest",
            "leest": "least",
            "coalesc": "coalesce",
            "nullf": "nullif",
            "noww": "now",
            "clock_timestam": "clock_timestamp",
            "current_databas": "current_database",
            "curent_user": "current_user",
            "pg_typof": "pg_typeof",
            "generate_serie": "generate_series",
        }.items()
    },
    "SELECT * FROM holder": "",
    "SELECT * FROM ordres": 'HINT: Perhaps you meant to reference the relation "public.orders".',
    "SELECT * FROM public.order": 'HINT: Perhaps you meant to reference the relation "public.orders".',
    "SELECT * FROM fresh_ordres": (
        'HINT: Perhaps you meant to reference the relation "public.fresh_orders".'
    ),
    "SELECT * FROM kept_order": (
        'HINT: Perhaps you meant to reference the relation "public.kept_orders".'
    ),
    "SELECT * FROM far": "",
    "SELECT * FROM other.ordres": "",
    "SELECT lenght('a')": 'HINT: Perhaps you meant to call the function "length".',
    "SELECT json_agg_object(1)": "",
    "SELECT length(1, 2)": "HINT: No function matches the given name and argument types."
    " You might need to add explicit type casts.",
}


def test_hint_names_what_may_be_meant(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            'CREATE TABLE orders (id int, amount int, "Note" text, amounts int)',
            "CREATE TABLE three (abc int, abd int, abe int)",
            "CREATE TABLE two (abc int, abd int)",
            "CREATE TABLE keyed (id int PRIMARY KEY, name text)",
            "CREATE VIEW fresh_orders AS SELECT id FROM orders",
            "CREATE MATERIALIZED VIEW kept_orders AS SELECT id FROM orders",
            "CREATE SCHEMA other",
        )
        for sql, hint in HINTS.items():
            answer = await env.query("a", sql)
            assert answer.startswith("ERROR 42"), answer
            said = next((line for line in answer.split("\n") if line.startswith("HINT")), "")
            if hint or "No function" not in said:
                assert said == hint, sql

    in_environment(tmp_path, scenario)


def _naive(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(_naive(a[1:], b) + 1, _naive(a, b[1:]) + 1, _naive(a[1:], b[1:]) + (a[0] != b[0]))


@given(st.text("abc", max_size=5), st.text("abc", max_size=5), st.integers(0, 4))
@settings(max_examples=examples(60))
def test_distance_is_that_of_levenshtein(a: str, b: str, most: int) -> None:
    assert distance(a, b, most) == min(_naive(a, b), most + 1)


def test_of_many_names_few_are_compared() -> None:
    names = (f"table_{n:06}" for n in range(10**6))
    nearest("tabel_999999", names)
    assert int(next(names)[-6:]) < 10_000
    assert nearest("ordres", ["orders", "other", "borders"]) == "orders"
