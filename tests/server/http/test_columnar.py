"""POST /api/sql with a header Accept: a result as Arrow, Parquet or CSV."""

import asyncio
import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from foreshore.server.http import columnar
from foreshore.server.http.columnar import media_type
from tests.server.http.serving import Http, over_environment

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
MIXED = (
    "SELECT * FROM (VALUES (1, 'a\"b,c', 1.50::numeric(10, 2), timestamptz '2026-01-02 03:04:05+00',"
    " interval '1 day', '{\"x\": [1]}'::jsonb), (NULL, '', NULL, NULL, NULL, NULL))"
    " AS t (i, s, n, at, d, j)"
)


async def asked(http: Http, kind: str, query: str, *params: str) -> httpx.Response:
    body = {"queries": [{"query": query, "params": params}]} if params else {"query": query}
    return await http.post(body, headers={"accept": kind})


def table_of(answer: httpx.Response) -> pa.Table:
    assert answer.status_code == 200, answer.text
    data = io.BytesIO(answer.content)
    if answer.headers["content-type"] == PARQUET:
        return pq.read_table(data)
    assert answer.headers["content-type"] == ARROW
    return pa.ipc.open_stream(data).read_all()


def test_values_have_the_types_of_the_format(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        for kind in (ARROW, PARQUET):
            found = table_of(await asked(http, kind, MIXED))
            assert found.column_names == ["i", "s", "n", "at", "d", "j"]
            first, second = found.to_pylist()
            assert first["i"] == 1
            assert first["s"] == 'a"b,c'
            assert first["n"] == Decimal("1.50")
            assert first["at"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
            assert first["j"] == '{"x": [1]}'
            assert second == {"i": None, "s": "", "n": None, "at": None, "d": None, "j": None}
        answer = await asked(http, CSV, MIXED)
        assert answer.headers["content-type"] == "text/csv"
        assert answer.text.splitlines()[2] == ',"",,,,'
        lines = list(csv.reader(io.StringIO(answer.text)))
        day = "2026-01-02 03:04:05+00"
        assert lines[0] == ["i", "s", "n", "at", "d", "j"]
        assert lines[1] == ["1", 'a"b,c', "1.50", day, "1 day", '{"x": [1]}']

    over_environment(tmp_path, go)


@pytest.mark.parametrize("kind", [ARROW, PARQUET, CSV])
def test_many_rows_and_none(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "GROUP_ROWS", 1000)

    async def go(http: Http) -> None:
        many = "SELECT i, repeat('x', 100) AS s FROM generate_series(1, 20000) i WHERE i <> $1::int"
        for query, params, count in ((many, ("7",), 19_999), ("SELECT 1 AS i WHERE false", (), 0)):
            answer = await asked(http, kind, query, *params)
            assert answer.status_code == 200
            if kind == CSV:
                ids = [row["i"] for row in csv.DictReader(io.StringIO(answer.text))]
                assert len(ids) == count
                assert sum(map(int, ids)) == (200_010_000 - 7 if count else 0)
            else:
                found = table_of(answer)
                assert found.num_rows == count
                assert sum(found["i"].to_pylist()) == (200_010_000 - 7 if count else 0)
        if kind == PARQUET:
            answer = await asked(http, kind, many, "7")
            assert pq.ParquetFile(io.BytesIO(answer.content)).num_row_groups > 1

    over_environment(tmp_path, go)


def test_statements_that_have_no_result_are_refused_before_they_run(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE TABLE t (a int)")
        for query, status, code in (
            ("INSERT INTO t VALUES (1)", 400, "0A000"),
            ("SELECT 1; SELECT 2", 400, "42601"),
            ("SELECT 1/0", 400, "22012"),
            ("SELECT nothing", 400, "42703"),
            ("SUBSCRIBE t", 400, "0A000"),
            ("COPY t TO STDOUT", 400, "0A000"),
        ):
            answer = await asked(http, ARROW, query)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), query
        assert await http.rows("SELECT count(*) FROM t") == [["0"]]
        inserted = table_of(await asked(http, ARROW, "INSERT INTO t VALUES (1), (2) RETURNING a"))
        assert inserted["a"].to_pylist() == [1, 2]
        assert await http.rows("SELECT count(*) FROM t") == [["2"]]

    over_environment(tmp_path, go)


def test_error_after_rows_were_sent_breaks_the_answer(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        late = "SELECT repeat(i::text, 50), 1 / (199999 - i) FROM generate_series(1, 200000) i"
        for kind in (ARROW, CSV, PARQUET):
            try:
                answer = await asked(http, kind, late)
            except httpx.RemoteProtocolError:
                continue
            assert answer.status_code == 400, kind  # the error came before any bytes
        assert await http.rows("SELECT 1") == [[1]]

    over_environment(tmp_path, go)


def test_type_is_chosen_by_the_first_that_is_known() -> None:
    assert media_type("") is None
    assert media_type("*/*") is None
    assert media_type("application/json, text/csv") is None
    assert media_type("image/png, text/CSV;q=0.5") == "text/csv"
    assert media_type(f"{PARQUET};q=1") == PARQUET


def test_client_that_goes_away_ends_its_statement(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE TABLE t (i int, s text)")
        await http.ran("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i")
        body = {"query": "SELECT * FROM t"}
        async with http.client.stream(
            "POST", "/api/sql", json=body, headers={"accept": CSV}
        ) as got:
            assert got.status_code == 200
            async for _ in got.aiter_raw():
                break
        async with asyncio.timeout(30):
            while http.sessions.places.taken:  # noqa: ASYNC110 - the end of a session tells nobody
                await asyncio.sleep(0.02)

    over_environment(tmp_path, go)
