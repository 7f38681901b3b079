"""Record PostgreSQL's answers: python -m tests.equality.record 'host=127.0.0.1 user=postgres'."""

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from psycopg import pq
from psycopg.pq.abc import PGconn

from tests.equality.cases import ORDERED, QUERIES, Case, cases
from tests.sqllogic.runner import Failed, rows_of

RECORDED = Path(__file__).parent / "recorded.json"
LONG = 24  # characters: longer answers are recorded as their digest
Answers = dict[str, list[str]]


def main(dsn: str) -> None:
    """Write the answers to all cases."""
    connection = pq.PGconn.connect(dsn.encode())
    assert connection.status == pq.ConnStatus.OK, connection.error_message
    found = {case.name: answers(connection, case) for case in cases()}
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def recorded() -> dict[str, Answers]:
    """Return PostgreSQL's answers by the names of cases."""
    found: dict[str, Answers] = json.loads(RECORDED.read_text())
    return found


def answers(connection: PGconn, case: Case) -> Answers:
    """Return PostgreSQL's ranks of a case's values, and its answers, also after the changes."""
    prepared = [
        "DROP SCHEMA IF EXISTS walk CASCADE",
        "CREATE SCHEMA walk",
        "SET search_path = walk",
    ]
    _run(connection, [*prepared, *case.prepared()])
    count = len(case.column()[1])
    ranks = f"SELECT id, dense_rank() OVER (ORDER BY x) AS r FROM t WHERE id <= {count}"
    ranked = f"SELECT r FROM ({ranks}) AS ranked ORDER BY id"
    places = rows_of(connection.exec_(ranked.encode()))
    before = _asked(connection)
    keyed = [short(_answer(connection, sql)) for sql in case.keyed()]
    _run(connection, case.changes())
    return {"ranks": places, "before": before, "keyed": keyed, "after": _asked(connection)}


def short(rows: list[str], *, is_ordered: bool = False) -> str:
    """Return rows in one line of text, the digest of a long one."""
    text = " ".join(rows if is_ordered else sorted(rows))
    return text if len(text) <= LONG else hashlib.sha256(text.encode()).hexdigest()[:12]


def _run(connection: PGconn, statements: Iterable[str]) -> None:
    for sql in statements:
        rows_of(connection.exec_(sql.encode()))


def _asked(connection: PGconn) -> list[str]:
    found = [short(_answer(connection, sql)) for sql in QUERIES.values()]
    return found + [short(_answer(connection, sql), is_ordered=True) for sql in ORDERED.values()]


def _answer(connection: PGconn, sql: str) -> list[str]:
    try:
        return rows_of(connection.exec_(sql.encode()))
    except Failed as error:
        return [f"ERROR {error.sqlstate}"]


if __name__ == "__main__":
    main(sys.argv[1])
