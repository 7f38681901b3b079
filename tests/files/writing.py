"""Tables of every type, and clients that write to them while tests read their files."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg

from foreshore import types
from foreshore.types import SqlType, array_of, numeric
from tests.harness import Server

BUSY = str(Path(__file__).with_name("busy_server.py"))

# SQL type, our type, literals
COLUMNS: dict[str, tuple[str, SqlType, tuple[str, ...]]] = {
    "bo": ("boolean", types.BOOL, ("true", "false")),
    "i2": ("smallint", types.INT2, ("-32768", "0")),
    "i4": ("integer", types.INT4, ("2147483647", "-7")),
    "i8": ("bigint", types.INT8, ("-9223372036854775808", "9223372036854775807")),
    "f4": ("real", types.FLOAT4, ("'-0'", "0", "'NaN'", "'Infinity'", "1.1")),
    "f8": ("double precision", types.FLOAT8, ("'-0'", "0", "'NaN'", "'-Infinity'", "1e-300")),
    "nu": ("numeric(38,5)", numeric(38, 5), ("123456789012345678901234567890.12345", "-0.00001")),
    "te": ("text", types.TEXT, ("''", "'NULL'", "'nan'", "E'\\u00e9\\n\"'")),
    "vc": ("varchar(9)", types.VARCHAR, ("'v'", "'w '")),
    "ch": ("char(4)", SqlType("bpchar", 4), ("'c'", "'d  '")),
    "by": ("bytea", types.BYTEA, ("'\\x'", "'\\x00ff80'")),
    "uu": ("uuid", types.UUID, ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",)),
    "js": ("jsonb", types.JSONB, ("'null'", '\'{"a": [1, 2.50, "x"]}\'')),
    "da": ("date", types.DATE, ("'0044-03-15 BC'", "'infinity'", "'-infinity'", "'2024-02-29'")),
    "ti": ("time", types.TIME_OF_DAY, ("'23:59:59.999999'", "'00:00'")),
    "ts": ("timestamp", types.TIMESTAMP, ("'0001-01-01'", "'infinity'", "'-infinity'")),
    "tz": ("timestamptz", types.TIMESTAMPTZ, ("'1500-06-01 12:00:00.000001+01'", "'infinity'")),
    "iv": ("interval", types.INTERVAL, ("'1 month'", "'30 days'", "'720 hours'", "'-1 us'")),
    "ai": ("integer[]", array_of(types.INT4), ("'{}'", "'{1,NULL,3}'")),
    "af": ("double precision[]", array_of(types.FLOAT8), ("'{-0,NaN}'", "'{0,NaN}'", "'{NULL}'")),
    "at": ("text[]", array_of(types.TEXT), ('\'{"a b","",NULL}\'', "'{NULL}'")),
    "an": ("numeric(9,2)[]", array_of(numeric(9, 2)), ("'{1.50,-2}'",)),
    "ad": ("timestamptz[]", array_of(types.TIMESTAMPTZ), ("'{infinity,2000-01-01}'",)),
}
NAMES = 'key integer, "A" text, "a" text, "`q""" double precision, "a_1" integer'
TYPES: dict[str, list[SqlType]] = {
    "every": [types.INT4, *(type for _, type, _ in COLUMNS.values())],
    "names": [types.INT4, types.TEXT, types.TEXT, types.FLOAT8, types.INT4],
    "account": [types.INT4, types.INT8],
    "sums": [types.INT4, types.INT8],
}
ACCOUNTS = 6
TOTAL = 1000 * ACCOUNTS


def create(connection: psycopg.Connection[object]) -> None:
    """Make the tables, and a materialized view."""
    columns = ", ".join(f"{name} {declared}" for name, (declared, _, _) in COLUMNS.items())
    connection.execute(f"CREATE TABLE every (k integer, {columns})".encode())
    connection.execute(f"CREATE TABLE names ({NAMES})".encode())
    connection.execute("CREATE TABLE account (id integer, balance bigint)")
    accounts = ", ".join(f"({i}, 1000)" for i in range(ACCOUNTS))
    connection.execute(f"INSERT INTO account VALUES {accounts}".encode())
    connection.execute(
        "CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n FROM every GROUP BY k"
    )


def random_row(random: random.Random) -> str:
    cells = [
        "NULL" if random.random() < 0.2 else random.choice(literals)
        for _, _, literals in COLUMNS.values()
    ]
    return f"({random.randrange(8)}, {', '.join(cells)})"


def write_rows(url: str, seed: int, stop: threading.Event) -> None:
    """Insert, delete and update rows of `every` and `names` until `stop`."""
    chosen = random.Random(seed)
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.is_set():
            rows = ", ".join(random_row(chosen) for _ in range(chosen.randrange(1, 6)))
            key = chosen.randrange(8)
            connection.execute(f"INSERT INTO every VALUES {rows}".encode())
            connection.execute(f"DELETE FROM every WHERE k = {key}".encode())
            connection.execute(f"INSERT INTO names VALUES ({key}, 'x', NULL, '-0', 1)".encode())
            if chosen.random() < 0.2:
                connection.execute(f"DELETE FROM names WHERE key = {key}".encode())


def transfer(url: str, seed: int, stop: threading.Event) -> None:
    """Move money between accounts until `stop`; their sum never changes."""
    chosen = random.Random(seed)
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.is_set():
            source, target = chosen.sample(range(ACCOUNTS), 2)
            connection.execute(
                f"UPDATE account SET balance = balance + CASE id WHEN {source} THEN -1 ELSE 1 END"
                f" WHERE id IN ({source}, {target})".encode()
            )


@contextlib.contextmanager
def busy(data_dir: Path, *args: str) -> Iterator[Server]:
    """Run a server that compacts constantly."""
    server = Server(data_dir, args, program=(BUSY,))
    try:
        yield server.start()
    finally:
        server.stop()


@contextlib.contextmanager
def written(server: Server) -> Iterator[None]:
    """Let clients write for the length of a block."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=write_rows, args=(server.url, 1, stop)),
        threading.Thread(target=transfer, args=(server.url, 2, stop)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
