"""Real clients over the fake one: psycopg and asyncpg, in text and binary."""

import asyncio
import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import asyncpg
import psycopg
import psycopg.types.json
import psycopg.types.numeric
import pyarrow as pa
import pytest

from foreshore.errors import DivisionByZero
from foreshore.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT8,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    array_of,
    arrow_type,
    numeric,
)
from tests.server.fake import FakeSession, desc_of
from tests.server.serving import Served

ALL = desc_of(
    b=BOOL, i=INT4, j=INT8, f=FLOAT8, n=numeric(10, 2), t=TEXT, y=BYTEA, d=DATE, ts=TIMESTAMP,
    tz=TIMESTAMPTZ, v=INTERVAL, u=UUID, o=JSONB, a=array_of(INT4), s=array_of(TEXT),
)  # fmt: skip
SOME: dict[str, list[Any]] = {
    "b": [True, None],
    "i": [-7, None],
    "j": [2**60, None],
    "f": [0.1, None],
    "n": [Decimal("12.50"), None],
    "t": ["héllo", None],
    "y": [b"\x00\xff", None],
    "d": [dt.date(2013, 1, 2), None],
    "ts": [dt.datetime(2013, 1, 2, 3, 4, 5, 600_000), None],
    "tz": [dt.datetime(2013, 1, 2, 3, 4, 5, tzinfo=dt.UTC), None],
    "v": [{"months": 0, "days": 1, "micros": 7_200_000_000}, None],
    "u": [uuid.UUID(int=5).bytes, None],
    "o": ['{"a": 1}', None],
    "a": [[1, None, 3], None],
    "s": [["x", "y z", None], None],
}
# What asyncpg reads without asking the catalog for more types.
PLAIN = desc_of(**{n: c.type for n, c in zip(ALL.names[:13], ALL.columns, strict=False)})
WANTED = (
    True, -7, 2**60, 0.1, Decimal("12.50"), "héllo", b"\x00\xff", dt.date(2013, 1, 2),
    dt.datetime(2013, 1, 2, 3, 4, 5, 600_000), dt.datetime(2013, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    dt.timedelta(days=1, hours=2), uuid.UUID(int=5), {"a": 1}, [1, None, 3], ["x", "y z", None],
)  # fmt: skip


@pytest.fixture
def values(served: Served) -> Served:
    served.client.rows("select everything", ALL, SOME)
    schema = ALL.arrow_schema()
    many = pa.RecordBatch.from_arrays(
        [pa.array(SOME[f.name] * 500, f.type) for f in schema], schema=schema
    )
    served.client.rows("select much", ALL, many)
    served.client.rows("select plain", PLAIN, SOME)
    served.client.rows("select plain much", PLAIN, many.select(list(PLAIN.names)))
    return served


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_reads_every_type(values: Served, binary: bool) -> None:
    with psycopg.connect(values.dsn(), autocommit=True) as connection:
        cursor = connection.cursor(binary=binary)
        for sql, times in (("select everything", 1), ("select much", 500)):
            rows = cursor.execute(sql).fetchall()
            assert rows == [WANTED, (None,) * len(WANTED)] * times
        assert [c.name for c in cursor.description or ()] == list(ALL.names)


def test_asyncpg_reads_every_type(values: Served) -> None:
    async def go() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=values.port, user="foreshore")
        for sql in ("select plain", "select plain much"):
            rows = await connection.fetch(sql)
            assert list(rows[0].values()) == [*WANTED[:12], '{"a": 1}']
            assert list(rows[-1].values()) == [None] * 13
        await connection.close()

    asyncio.run(go())


def test_arguments_are_decoded_to_datums(served: Served) -> None:
    seen: list[Any] = []
    types = tuple(column.type for column in ALL.columns)

    def take(*args: Any) -> Any:
        seen.append(args)
        return {"x": [1]}

    marks = ", ".join(f"${i}" for i in range(1, len(types) + 1))
    served.client.rows(f"put {marks}", desc_of(x=INT4), take, parameters=types)
    wanted = (
        True, -7, 2**60, 0.1, "12.50", "héllo", b"\x00\xff", 15707, 1357095845600000, 1357095845000000,
        (0, 1, 7_200_000_000), uuid.UUID(int=5).bytes, '{"a": 1}', (1, None, 3), ("x", "y z", None),
    )  # fmt: skip

    plain = ", ".join(f"${i}" for i in range(1, 14))
    served.client.rows(f"put {plain}", desc_of(x=INT4), take, parameters=types[:13])

    async def go() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=served.port, user="foreshore")
        await connection.fetch(f"put {plain}", *WANTED[:12], '{"a": 1}')
        await connection.fetch(f"put {plain}", *[None] * 13)
        await connection.close()

    asyncio.run(go())
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        for binary in "%t", "%b":
            args = [psycopg.types.json.Jsonb(v) if isinstance(v, dict) else v for v in WANTED]
            args[1] = psycopg.types.numeric.Int4(-7)
            args[2] = psycopg.types.numeric.Int8(2**60)
            served.client.statements[f"put {marks}"].parameters = types
            connection.execute("put " + ", ".join([binary] * len(types)), args)
    assert seen == [wanted[:13], (None,) * 13, wanted, wanted]


def test_error_has_all_fields_and_connection_stays_usable(served: Served) -> None:
    def fail(session: FakeSession, args: Any) -> Any:
        raise DivisionByZero("division by zero", detail="d", hint="h", position=8)

    served.client.does("select 1/0", fail)
    served.client.rows("select 1", desc_of(x=INT4), {"x": [1]})
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        for prepare in (False, True):
            with pytest.raises(psycopg.errors.DivisionByZero) as caught:
                connection.execute("select 1/0", prepare=prepare)
            diagnostic = caught.value.diag
            assert diagnostic.severity == diagnostic.severity_nonlocalized == "ERROR"
            assert diagnostic.message_detail == "d"
            assert diagnostic.message_hint == "h"
            assert diagnostic.statement_position == "8"
            assert connection.execute("select 1", prepare=prepare).fetchall() == [(1,)]
        with connection.transaction(force_rollback=True):
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("select 1/0")
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                connection.execute("select 1")
        assert connection.execute("select 1").fetchall() == [(1,)]
    assert served.client.startups[0].database == "foreshore"


def test_unforeseen_error_reaches_client_without_details(served: Served) -> None:
    def fail(session: FakeSession, args: Any) -> Any:
        raise KeyError("secret")

    served.client.does("bug", fail)
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InternalError_) as caught:
            connection.execute("bug")
        assert "secret" not in str(caught.value)
        assert caught.value.sqlstate == "XX000"


def test_cursor_fetches_rows_on_demand(served: Served) -> None:
    desc = desc_of(x=INT4)
    served.client.rows("numbers", desc, {"x": list(range(5))}, {"x": list(range(5, 12))})

    async def go() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=served.port, user="foreshore")
        async with connection.transaction():
            got = [row["x"] async for row in connection.cursor("numbers", prefetch=4)]
            assert got == list(range(12))
            assert await connection.fetchval("numbers") == 0
            assert await connection.fetchrow("numbers") == (0,)
        assert len(await connection.fetch("numbers")) == 12
        await connection.close()

    asyncio.run(go())


def test_cancel_with_wrong_key_does_nothing(served: Served) -> None:
    served.client.does("hang", lambda session, _: session.hang())

    async def go() -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=served.port, user="foreshore")
        with pytest.raises(asyncio.TimeoutError):
            await connection.execute("hang", timeout=0.2)
        with pytest.raises(asyncio.TimeoutError):
            await connection.fetch("hang", timeout=0.2)
        await connection.execute("begin")
        await connection.close()

    asyncio.run(go())


def test_pipeline_keeps_order(served: Served) -> None:
    served.client.rows("echo $1", desc_of(x=INT4), lambda x: {"x": [x]}, parameters=(INT4,))
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        with connection.pipeline():
            cursors = [connection.execute("echo %s", [i]) for i in range(500)]
        assert [cursor.fetchone() for cursor in cursors] == [(i,) for i in range(500)]


def test_results_of_several_statements_come_in_order(served: Served) -> None:
    served.client.rows("one", desc_of(x=INT4), {"x": [1]})
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        cursor = connection.execute("one; ; one; begin; one")
        assert cursor.fetchall() == [(1,)]
        assert cursor.nextset()
        assert cursor.fetchall() == [(1,)]
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        for nothing in "", " ; ":
            result = connection.execute(nothing).pgresult
            assert result is not None
            assert result.status == psycopg.pq.ExecStatus.EMPTY_QUERY


def test_arrow_types_match_row_description() -> None:
    assert [arrow_type(c.type) for c in ALL.columns] == ALL.arrow_schema().types
