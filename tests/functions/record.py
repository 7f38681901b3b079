"""Record PostgreSQL's answers: python -m tests.functions.record 'host=127.0.0.1 user=postgres'.

Any PostgreSQL 15 with the locale C.UTF-8 will do. There is one file for each initial part of the
cases. For each row it has the text, or the SQLSTATE and message of the error.
"""

import json
import sys
from itertools import product
from pathlib import Path

import psycopg

from tests.functions.cases import (
    AGGREGATES,
    CASES,
    OPERAND_TYPES,
    OPERATORS,
    SERIES,
    Case,
)

RECORDED = Path(__file__).parent / "recorded"
INFIX = {"is distinct from", "is not distinct from"}


def in_postgresql(type: str) -> str:
    """Return PostgreSQL's name of a type in a case."""
    return "numeric" if type == "number" else type


def sql_of(case: Case) -> str:
    """Return the expression, with %s for each argument's text."""
    args = [f"CAST(%s::text AS {in_postgresql(t.lstrip('='))})" for t in case.types]
    if case.name.startswith("cast "):
        return f"CAST({args[0]} AS {in_postgresql(case.name[5:])})"
    if case.name == "array_subscript":
        return f"({args[0]})[{args[1]}]"
    if case.name == "similar_to_escape":
        return f"pg_catalog.similar_to_escape({args[0]})"
    if case.name in ("extract", "normalize"):
        return f"pg_catalog.{case.name}({', '.join(args)})"
    if case.name[0].isalpha() and case.name not in INFIX:
        return f"{case.name}({', '.join(args)})"
    name = case.name.replace("%", "%%")
    return f"({args[0]} {name} {args[1]})" if len(args) == 2 else f"({name} {args[0]})"


def answer(connection: "psycopg.Connection[tuple[str | None]]", sql: str, row: object) -> object:
    try:
        found = connection.execute(
            sql if sql.startswith("SELECT ") else f"SELECT ({sql})::text", row
        ).fetchone()  # type: ignore[call-overload]
    except psycopg.Error as error:
        return {"error": f"{error.sqlstate} {error.diag.message_primary}"}
    assert found is not None
    return found[0]


def main(dsn: str) -> None:
    RECORDED.mkdir(exist_ok=True)
    answers: dict[tuple[str, tuple[str, ...]], list[object]] = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE EXTENSION IF NOT EXISTS pgcrypto")  # digest, hmac
        for case in CASES:
            sql = sql_of(case)
            rows = answers.setdefault((case.name, case.types), [])
            rows += [[list(row), answer(connection, sql, row)] for row in case.rows]
        for (kind, name), cases in (*AGGREGATES.items(), *SERIES.items()):
            for types, values in cases:
                sql = aggregate_sql(name, types) if kind == "aggregate" else table_sql(name, types)
                rows = answers.setdefault((f"{kind} {name}", types), [])
                rows += [[list(row), answer(connection, sql, row)] for row in values]
        record_resolution(connection)
    by_file: dict[str, list[str]] = {}
    for (name, types), rows in answers.items():
        parts = {"name": name, "types": types, "rows": rows}
        by_file.setdefault(family_of(name, types), []).append(json.dumps(parts, ensure_ascii=False))
    for family, lines in by_file.items():
        (RECORDED / f"{family}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def record_resolution(connection: "psycopg.Connection[tuple[str | None]]") -> None:
    """Record the result type of every operator over every pair of types that it accepts."""
    lines = []
    for name, types in ((n, t) for n in OPERATORS for t in product(OPERAND_TYPES, repeat=2)):
        args = [t if t == "NULL" else f"NULL::{t}" for t in types]
        call = (
            f"{name}({args[0]}, {args[1]})" if name[0].isalpha() else f"{args[0]} {name} {args[1]}"
        )
        try:
            found = connection.execute(f"SELECT pg_typeof({call})").fetchone()
        except psycopg.Error:
            continue
        assert found is not None
        lines.append(json.dumps([name, *types, found[0]]))
    (RECORDED / "resolution.txt").write_text("\n".join(lines) + "\n")


def aggregate_sql(name: str, types: tuple[str, ...]) -> str:
    """Return the aggregate over the elements of an array given as text."""
    return (
        f"SELECT {name}(v)::text FROM unnest(CAST(%s::text AS {in_postgresql(types[0])}[])) AS t(v)"
    )


def table_sql(name: str, types: tuple[str, ...]) -> str:
    """Return the rows of a table function as an array."""
    args = ", ".join(f"CAST(%s::text AS {t})" for t in types)
    return f"SELECT array(SELECT t::text FROM {name}({args}) AS t)::text"


def family_of(name: str, types: tuple[str, ...]) -> str:
    """Return the name of the file that holds a case's answers."""
    words = " ".join((name, *types))
    if "number" in words and not name.startswith("aggregate "):
        return "unscaled"
    if name.startswith("cast "):
        return "casts"
    if name.startswith(("aggregate ", "table ")):
        return "aggregates" if name.startswith("aggregate ") else "tables"
    if "json" in words:
        return "jsonb"
    if "[]" in words:
        return "arrays"
    if any(word in words for word in ("date", "time", "interval")):
        return "datetime"
    return "text" if "text" in words else "numbers"


if __name__ == "__main__":
    main(sys.argv[1])
