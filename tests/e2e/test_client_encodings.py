"""Clients with other encodings than UTF8 read and write what clients of PostgreSQL do."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import pq

from tests.harness import Server

TEXTS = {
    "LATIN1": "é ß ÿ",
    "LATIN9": "é € Ž",
    "WIN1252": "é € „x“",
    "WIN1251": "привет",
    "SJIS": "漢字 表 ソ",
    "GB18030": "漢字 é 😀",
    "EUC_JP": "漢字",
}
CODECS = {"LATIN9": "iso8859-15", "WIN1252": "cp1252", "WIN1251": "cp1251", "SJIS": "cp932"}


def answers(url: str, name: str, text: str) -> Iterator[object]:
    """Yield what a server answers to a client with an encoding, as bytes."""
    codec = CODECS.get(name, name)
    with psycopg.connect(url, autocommit=True) as connection:
        pg = connection.pgconn

        def run(sql: str, *args: bytes, formats: tuple[int, ...] = (), result: int = 0) -> object:
            got = (
                pg.exec_params(sql.encode(codec), list(args), None, formats or None, result)
                if args or result
                else pg.exec_(sql.encode(codec))
            )
            if got.status == pq.ExecStatus.FATAL_ERROR:
                code = got.error_field(pq.DiagnosticField.SQLSTATE)
                return code, got.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
            rows = [[got.get_value(i, j) for j in range(got.nfields)] for i in range(got.ntuples)]
            return [got.fname(i) for i in range(got.nfields)], rows

        yield run(f"SET client_encoding = '{name}'"), pg.parameter_status(b"client_encoding")
        yield run("SHOW client_encoding"), run("SELECT pg_client_encoding()")
        yield run(f"SELECT '{text}' AS \"{text}\", octet_length('{text}'), 1 AS n")
        raw = text.encode(codec)
        yield run("SELECT $1::text || '!', length($1)", raw)
        yield run("SELECT $1::text || '!', $2::int", raw, b"\0\0\0\x07", formats=(1, 1), result=1)
        yield run(f'SELECT 1 FROM "{text}"')
        pg.exec_(b"CREATE TEMP TABLE copied (n int, t text)")
        pg.exec_(b"COPY copied FROM STDIN")
        data = b"".join(b"%d\t%s\n" % (i, raw) for i in range(300))
        for at in range(0, len(data), 7):  # characters are split
            pg.put_copy_data(data[at : at + 7])
        pg.put_copy_end()
        ended = pg.get_result()
        assert ended is not None
        yield ended.status, pg.get_result()
        yield run("SELECT count(*), min(t), max(octet_length(t)) FROM copied")
        pg.exec_(b"COPY (SELECT t FROM copied LIMIT 2) TO STDOUT (FORMAT csv, HEADER)")
        lines = []
        while (line := pg.get_copy_data(0))[0] > 0:
            lines.append(bytes(line[1]))
        yield lines
        pg.get_result()
        for encoding, given in (("UTF8", text.encode()), (name, raw)):
            run(f"SET client_encoding = '{name if encoding == 'UTF8' else 'UTF8'}'")
            pg.exec_(f"COPY copied FROM STDIN (ENCODING '{encoding}')".encode())
            pg.put_copy_data(b"7\t" + given + b"\n")
            pg.put_copy_end()
            yield pg.get_result() is not None, pg.get_result()
            query = "SELECT t FROM copied WHERE n = 7 LIMIT 1"
            pg.exec_(f"COPY ({query}) TO STDOUT (ENCODING '{encoding}')".encode())
            yield bytes(pg.get_copy_data(0)[1]), pg.get_copy_data(0)[0]
            pg.get_result()
        run(f"SET client_encoding = '{name}'")
        yield run("SELECT chr(1234), 1")  # Cyrillic that few have
        yield run("SELECT 'more'")
        run("BEGIN")
        run("SET LOCAL client_encoding = utf8")
        yield run("SELECT 1"), pg.parameter_status(b"client_encoding")
        run("ROLLBACK")
        yield run(f"SELECT '{text}'"), pg.parameter_status(b"client_encoding")


@pytest.mark.parametrize("name", TEXTS)
def test_client_with_encoding_reads_and_writes_as_with_postgresql(
    server: Server, postgres_url: str, name: str
) -> None:
    ours = list(answers(server.url, name, TEXTS[name]))
    assert ours == list(answers(postgres_url, name, TEXTS[name]))


@pytest.mark.parametrize(
    ("encoding", "query", "parameter"),
    [
        ("WIN1252", b"SELECT '\x81'", None),
        ("SJIS", b"SELECT '\x81'", None),
        ("LATIN1", b"SELECT chr(8364)", None),
        ("WIN1252", b"SELECT $1::text", b"\x81"),
        ("no such one", b"SELECT 1", None),
    ],
)
def test_text_without_equivalent_is_refused(
    server: Server, postgres_url: str, encoding: str, query: bytes, parameter: bytes | None
) -> None:
    def refusals(url: str) -> Iterator[tuple[object, object]]:
        with psycopg.connect(url, autocommit=True) as connection:
            pg = connection.pgconn
            for sql in (f"SET client_encoding = '{encoding}'".encode(), query, b"SELECT 1"):
                args = [parameter] if parameter and sql == query else None
                got = pg.exec_params(sql, args) if args else pg.exec_(sql)
                field = got.error_field
                yield (
                    field(pq.DiagnosticField.SQLSTATE),
                    field(pq.DiagnosticField.MESSAGE_PRIMARY),
                )

    ours = list(refusals(server.url))
    assert ours == list(refusals(postgres_url))
    assert any(code for code, _ in ours)
