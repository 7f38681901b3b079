"""A numeric fails where it cannot be held to its last digit and PostgreSQL would hold it."""

from decimal import Decimal

import psycopg
import pytest

from tests.harness import Server

LONG = "0.1234567890123456789012345"
REFUSED = [
    f"SELECT numrange(x + {LONG}, NULL) FROM n",
    f"SELECT x + {LONG} <@ numrange(0, 1) FROM n",
    "SELECT avg(x) FROM (VALUES (1e-25), (2e-25), (2e-25)) v(x)",
]
KEPT = {
    f"SELECT {LONG}": LONG,
    f"INSERT INTO n VALUES ({LONG}) RETURNING x": LONG,
    f"INSERT INTO n VALUES ('{LONG}') RETURNING x": LONG,
    f"INSERT INTO n SELECT {LONG} RETURNING x": LONG,
    "INSERT INTO n VALUES (1e-25) RETURNING x": "0.0000000000000000000000001",
    "INSERT INTO n SELECT x * 0.1 FROM n RETURNING x": "0.000000000000000000001",
    f"UPDATE n SET x = {LONG} RETURNING x": LONG,
    "UPDATE n SET x = x * x RETURNING x": "0.0000000000000000000000000000000000000001",
    f"SELECT '{LONG}'::text::numeric": LONG,
    f"SELECT '{{{LONG}}}'::numeric[]::text": f"{{{LONG}}}",
    f"SELECT ARRAY['{LONG}']::numeric[]::text": f"{{{LONG}}}",
    f"SELECT {LONG}::numeric(30, 25)": LONG,
    f"SELECT {LONG}::numeric(20, 10)": "0.1234567890",
    f"SELECT round({LONG}, 3)": "0.123",
    "SELECT 1 / 3::numeric": "0.33333333333333333333",
    "SELECT 1 / 30000.0": "0.000033333333333333333333",
    "SELECT 1e-19 / 10": "0.0000000000000000000100000000000000000000",
    "SELECT 1e-19 / 8": "0.000000000000000000012500000000000000",
    "SELECT 1e-25 / 3": "0.00000000000000000000000003333333333333333333",
    "SELECT exp(-50::numeric)": "0.0000000000000000000001928749847963918",
    "SELECT x * 10 FROM n": "0.00000000000000000010",
}


@pytest.fixture
def connection(server: Server) -> psycopg.Connection[tuple[object]]:
    connection = server.connect()
    connection.execute("CREATE TEMPORARY TABLE n (x numeric)")
    connection.execute("INSERT INTO n VALUES (1e-20)")
    return connection


@pytest.mark.parametrize("statement", REFUSED)
def test_numeric_that_would_lose_a_digit_is_out_of_range(
    statement: str, connection: psycopg.Connection[tuple[object]]
) -> None:
    with connection, pytest.raises(psycopg.errors.NumericValueOutOfRange):
        connection.execute(statement.encode())


@pytest.mark.parametrize("statement", KEPT)
def test_numeric_that_is_held_or_rounded_by_postgresql_is_given(
    statement: str, connection: psycopg.Connection[tuple[object]]
) -> None:
    with connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    shown = format(row[0], "f") if isinstance(row[0], Decimal) else row[0]
    assert shown == KEPT[statement]


@pytest.mark.parametrize("value", [LONG, "1.50", "0.0000000000000000000000001", "NaN", "1E+40"])
@pytest.mark.parametrize("form", ["%s", "%b"])
def test_parameter_keeps_its_digits(
    value: str, form: str, connection: psycopg.Connection[tuple[object]]
) -> None:
    with connection:
        insert = f"INSERT INTO n VALUES ({form}) RETURNING x::text".encode()
        row = connection.execute(insert, (Decimal(value),)).fetchone()
    assert row == (format(Decimal(value), "f"),)
