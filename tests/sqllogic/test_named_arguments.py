"""Arguments of the protocol whose types are names of objects, as PostgreSQL takes them."""

import psycopg
import pytest

from tests.harness import Server

NAMED = [
    (2205, b"pg_class", b"pg_class"),
    (2206, b"int4", b"integer"),
    (4089, b"pg_catalog", b"pg_catalog"),
    (24, b"now", b"now"),
    (2210, b"{pg_class,NULL,1247}", b"{pg_class,NULL,pg_type}"),
    (2211, b"{int4,-,25}", b"{integer,-,text}"),
    (4090, b"{pg_catalog}", b"{pg_catalog}"),
    (1008, b"{now}", b"{now}"),
]


@pytest.mark.parametrize(("oid", "value", "shown"), NAMED)
def test_argument_of_a_type_of_names_is_looked_up(
    oid: int, value: bytes, shown: bytes, server: Server, postgres_url: str
) -> None:
    for url in (server.url, postgres_url):
        with psycopg.connect(url) as connection:
            asked = connection.pgconn.exec_params(b"SELECT $1", [value], [oid])
            assert asked.get_value(0, 0) == shown, (url, asked.error_message)


@pytest.mark.parametrize(
    ("oid", "sqlstate"), [(2205, b"42P01"), (2206, b"42704"), (4089, b"3F000")]
)
def test_argument_that_names_nothing_is_an_error(
    oid: int, sqlstate: bytes, server: Server, postgres_url: str
) -> None:
    for url in (server.url, postgres_url):
        with psycopg.connect(url) as connection:
            asked = connection.pgconn.exec_params(b"SELECT $1", [b"no_such"], [oid])
            assert asked.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == sqlstate, url
