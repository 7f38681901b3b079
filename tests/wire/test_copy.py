"""COPY over the wire: with psycopg and asyncpg, and with clients that fail or leave."""

import asyncio
import socket
import struct
from typing import Any

import asyncpg
import psycopg
import pyarrow as pa
import pytest

from foreshore.adapter.client import CopyOptions
from foreshore.server import copying as server_copying
from foreshore.server.copy_in import PIECE
from foreshore.server.protocol import GATHERED
from foreshore.types import INT4, TEXT
from tests.server.fake import desc_of
from tests.server.serving import Served
from tests.wire.raw import Raw

DESC = desc_of(a=INT4, b=TEXT)
CSV = CopyOptions(format="csv", delimiter=",", null="")


@pytest.fixture
def copying(served: Served) -> Served:
    served.client.copy_in("copy t from stdin", DESC, CopyOptions())
    served.client.copy_in("copy t from stdin csv", DESC, CSV)
    served.client.copy_in("copy t from stdin binary", DESC, CopyOptions(format="binary"))
    batch = pa.RecordBatch.from_pydict(
        {"a": list(range(20_000)), "b": [f"x{i}" for i in range(20_000)]}, DESC.arrow_schema()
    )
    served.client.copy_out("copy t to stdout", DESC, CopyOptions(), batch, batch.slice(5, 2))
    served.client.copy_out(
        "copy t to stdout binary", DESC, CopyOptions(format="binary"), batch.slice(0, 3)
    )
    served.client.rows("select 1", desc_of(x=INT4), {"x": [1]})
    return served


def write_all(copy: psycopg.Copy, *pieces: Any) -> None:
    for piece in pieces:
        copy.write(piece)


def fail_after(copy: psycopg.Copy, piece: bytes) -> None:
    copy.write(piece)
    raise ZeroDivisionError


def copied(served: Served) -> list[tuple[Any, Any]]:
    return [row for b in served.client.copied for row in zip(*b.to_pydict().values(), strict=True)]


def test_copy_in_receives_rows(copying: Served) -> None:
    with psycopg.connect(copying.dsn(), autocommit=True) as connection:
        cursor = connection.cursor()
        with cursor.copy("copy t from stdin") as copy:
            for i in range(3):
                copy.write_row((i, f"a\t{i}\n"))
        assert cursor.statusmessage == "COPY 3"
        assert connection.execute("select 1").fetchall() == [(1,)]
    assert copied(copying) == [(i, f"a\t{i}\n") for i in range(3)]


def test_copy_in_of_many_rows_goes_in_pieces(copying: Served) -> None:
    line = b'7,"' + b"x" * 500 + b'"\n'
    with psycopg.connect(copying.dsn(), autocommit=True) as connection:
        cursor = connection.cursor()
        with cursor.copy("copy t from stdin csv") as copy:
            for _ in range(200):
                copy.write(line * 100)
        assert cursor.rowcount == 20_000
    assert len(copying.client.copied) > 1
    assert copied(copying) == [(7, "x" * 500)] * 20_000


def test_copy_binary_in_and_out(copying: Served) -> None:
    with psycopg.connect(copying.dsn(), autocommit=True) as connection:
        cursor = connection.cursor()
        with cursor.copy("copy t from stdin binary") as copy:
            copy.set_types(["int4", "text"])
            copy.write_row((1, "x"))
            copy.write_row((None, None))
        with cursor.copy("copy t to stdout binary") as copy:
            copy.set_types(["int4", "text"])
            assert list(copy.rows()) == [(0, "x0"), (1, "x1"), (2, "x2")]
    assert copied(copying) == [(1, "x"), (None, None)]


def test_asyncpg_copies_in_and_out(copying: Served) -> None:
    async def go() -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=copying.port, user="foreshore", statement_cache_size=0
        )
        out: list[bytes] = []

        async def keep(data: bytes) -> None:
            out.append(data)

        copying.client.statements["COPY (copy t to stdout) TO STDOUT"] = copying.client.statements[
            "copy t to stdout"
        ]
        await connection.copy_from_query("copy t to stdout", output=keep)
        assert b"".join(out).count(b"\n") == 20_002
        await connection.close()

    asyncio.run(go())


def test_copy_out_sends_one_row_in_each_message(copying: Served) -> None:
    with psycopg.connect(copying.dsn(), autocommit=True) as connection:
        cursor = connection.cursor()
        with cursor.copy("copy t to stdout") as copy:
            rows = list(copy.rows())
        assert rows[:2] + rows[-2:] == [("0", "x0"), ("1", "x1"), ("5", "x5"), ("6", "x6")]
        assert len(rows) == 20_002


def test_copy_in_of_invalid_data_names_line_and_column(copying: Served) -> None:
    with psycopg.connect(copying.dsn(), autocommit=True) as connection:
        cursor = connection.cursor()
        with (
            pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught,
            cursor.copy("copy t from stdin") as copy,
        ):
            write_all(copy, b"1\tx\nz\ty\n", *[b"1\tx\n" * 1000] * 1000)
        assert caught.value.diag.context == 'COPY t, line 2, column a: "z"'
        assert connection.execute("select 1").fetchall() == [(1,)]
    assert copying.client.copied == []
    assert copying.client.aborted == 1


def test_copy_in_of_much_data_reports_first_invalid_record(copying: Served) -> None:
    """Pieces are read concurrently, and later ones are invalid too, or valid."""
    line = b'7,"' + b"x" * 300 + b'\n"\n'
    lines = [line] * 60_000
    lines[40_000] = b"7,a,more\n"
    lines[30_000] = b"z,a\n"
    with psycopg.connect(copying.dsn(), autocommit=True) as connection:
        with (
            pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught,
            connection.cursor().copy("copy t from stdin csv") as copy,
        ):
            copy.write(b"".join(lines))
        # PostgreSQL does not count the newline within the first record.
        assert caught.value.diag.context == 'COPY t, line 60000, column a: "z"'
        assert connection.execute("select 1").fetchall() == [(1,)]
    assert copying.client.copied == []
    assert copying.client.aborted == 1


def test_copy_in_of_much_data_keeps_order(copying: Served) -> None:
    rows = [(i, f"{i}\t" * 20) for i in range(100_000)]
    with psycopg.connect(copying.dsn(), autocommit=True) as connection:
        cursor = connection.cursor()
        with cursor.copy("copy t from stdin csv") as copy:
            copy.write("".join(f"{i},{text}\n" for i, text in rows))
        assert cursor.statusmessage == "COPY 100000"
    assert len(copying.client.copied) > 2
    assert copied(copying) == rows


def test_copy_fail_changes_nothing(copying: Served) -> None:
    with psycopg.connect(copying.dsn(), autocommit=True) as connection:
        with (
            pytest.raises(ZeroDivisionError),
            connection.cursor().copy("copy t from stdin") as copy,
        ):
            fail_after(copy, b"1\tx\n")
        assert connection.execute("select 1").fetchall() == [(1,)]
    assert copying.client.copied == []


@pytest.mark.parametrize("politely", [True, False])
def test_disconnect_during_copy_changes_nothing(copying: Served, politely: bool) -> None:
    raw = Raw(copying.port)
    raw.send("Q", b"copy t from stdin\0")
    assert raw.receive()[0] == "G"
    raw.send("d", b"1\tx\n" * 100_000)
    if not politely:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.socket.close()
    copying.eventually(lambda: not copying.client.sessions)
    assert copying.client.copied == []
    assert copying.client.aborted == 1


def test_flush_and_sync_during_copy_are_ignored(copying: Served) -> None:
    raw = Raw(copying.port)
    raw.send("P", b"\0copy t from stdin\0\0\0")
    raw.send("B", b"\0\0" + b"\0" * 6)
    raw.send("E", b"\0\0\0\0\0")
    raw.send("S")
    raw.send("d", b"1\tx\n")
    raw.send("H")
    raw.send("c")
    raw.send("S")
    assert [code for code, _ in raw.until("Z")] == ["1", "2", "G", "C", "Z"]
    assert copied(copying) == [(1, "x")]
    raw.socket.close()


@pytest.mark.parametrize(
    ("statement", "head"),
    [
        ("copy t from stdin", b"1\t"),
        ("copy t from stdin csv", b'1,"'),
        (
            "copy t from stdin binary",
            b"PGCOPY\n\xff\r\n\0" + bytes(8) + struct.pack("!hiii", 2, 4, 1, 1 << 29),
        ),
    ],
)
@pytest.mark.parametrize("of_all", [False, True])
def test_row_without_end_fails_alone(
    copying: Served, monkeypatch: pytest.MonkeyPatch, statement: str, head: bytes, of_all: bool
) -> None:
    if of_all:
        monkeypatch.setattr(GATHERED, "all", PIECE)
    else:
        monkeypatch.setattr(server_copying, "LONGEST_ROW", 2 * PIECE)
    raw = Raw(copying.port)
    raw.send("Q", statement.encode() + b"\0")
    raw.until("G")
    raw.send("d", head)
    for _ in range(24):
        raw.send("d", b"x" * (1 << 20))
    raw.send("c")
    (_, error), *_ = raw.until("Z")
    assert (b"C53200\0" if of_all else b"C54000\0") in error
    assert b"Mout of memory\0" in error
    assert GATHERED.bytes == 0
    raw.send("Q", b"select 1\0")
    assert [code for code, _ in raw.until("Z")][-2:] == ["C", "Z"]
