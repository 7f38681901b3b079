"""A row for which a function raises what nobody expected: its views are readable once it is gone."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from foreshore.expr.functions.function import BY_KEY, SCALARS, Signature, declare
from foreshore.expr.functions.rows import mapped
from tests.adapter.harness import TestEnvironment, in_environment

FAILED = "ERROR XX000: internal error: ZeroDivisionError"


def _reciprocal_column(types: Signature, numbers: pa.Array) -> pa.Array:
    if 0 in numbers.to_pylist():
        raise ZeroDivisionError
    return pc.divide(100, numbers)


@pytest.fixture(autouse=True)
def _functions() -> Iterator[None]:
    """Declare two functions that raise ZeroDivisionError for 0."""
    declare("of_column", "int8", "int8", _reciprocal_column, fallible=True)
    declare("of_rows", "int8", "int8", mapped(lambda n: 100 // n), fallible=True)
    yield
    for name in ("of_column", "of_rows"):
        del SCALARS[name], BY_KEY[f"{name}(int8)"]


@pytest.mark.parametrize("function", ["of_column", "of_rows"])
def test_row_fails_alone_and_its_error_goes_with_it(tmp_path: Path, function: str) -> None:
    views = {
        "m": f"SELECT n, {function}(n) AS x FROM t",
        "filtered": f"SELECT n FROM t WHERE {function}(n) > 30",
        "sums": f"SELECT n % 2 AS half, sum({function}(n)) AS s FROM t GROUP BY n % 2",
        "joined": f"SELECT t.n FROM t JOIN t u ON {function}(t.n) = u.n",
    }
    reads = {
        "inline": f"SELECT {function}(n) FROM (VALUES (0::int8), (4)) v (n)",
        "table": f"SELECT n, {function}(n) FROM t",
        "bulk": f"SELECT {function}(t.n), count(*) FROM t JOIN t u USING (n) GROUP BY 1",
        "index": "SELECT * FROM v WHERE n = 0",
        "failing view": "SELECT * FROM failing",
    }

    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "CREATE TABLE t (n int8)", "INSERT INTO t VALUES (1), (4)")
        for name, query in views.items():
            await env.ran("s", f"CREATE MATERIALIZED VIEW {name} WITH (ON ERROR = SKIP) AS {query}")
        await env.ran("s", f"CREATE MATERIALIZED VIEW failing AS {views['m']}")
        await env.ran("s", f"CREATE VIEW v AS {views['m']}", "CREATE INDEX v_n ON v (n)")
        before = [await env.ran("s", f"SELECT * FROM {name}") for name in views]
        await env.ran("s", "INSERT INTO t VALUES (0)")
        for name, query in reads.items():
            assert (await env.query("s", query)).startswith(FAILED), name
        assert [await env.ran("s", f"SELECT * FROM {name}") for name in views] == before
        await env.reopen()
        assert [await env.ran("s", f"SELECT * FROM {name}") for name in views] == before
        await env.ran("s", "DELETE FROM t WHERE n = 0")
        assert [await env.ran("s", f"SELECT * FROM {name}") for name in views] == before
        for query in (reads["table"], reads["bulk"], reads["index"], reads["failing view"]):
            await env.ran("s", query)

    in_environment(tmp_path, scenario)
