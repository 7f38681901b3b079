"""Ranges of an index's key, and first rows in its order, read few rows of a view."""

from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.compute import peek
from foreshore.expr.ir import Relation
from tests.adapter.harness import TestEnvironment, until

SETUP = (
    "CREATE TABLE events (id int NOT NULL, who text, at timestamp, amount numeric(9, 2))",
    "INSERT INTO events SELECT i, CASE WHEN i % 10 < 9 THEN 'user ' || i % 7 END,"
    " TIMESTAMP '2026-01-01' + i * INTERVAL '1 min', i % 50 FROM generate_series(1, 5000) AS i",
    "CREATE VIEW shown AS SELECT id, who, at, amount FROM events WHERE id % 5 <> 0",
    "CREATE INDEX by_id ON shown (id)",
    "CREATE INDEX by_who ON shown (who, at)",
    "CREATE INDEX by_amount ON shown (amount, id)",
)
# what a condition and an order find, and the index that is read in part
QUERIES = {
    "WHERE id > 4990": "by_id",
    "WHERE id BETWEEN 10 AND 12.5": "by_id",
    "WHERE id < 0": "by_id",
    "WHERE who = 'user 3' AND at >= '2026-01-04 10:00'": "by_who",
    "WHERE who > 'user 5' AND who < 'user 6x' AND id < 100": "by_who",
    "WHERE (who, at) > ('user 6', '2026-01-04 10:00')": "by_who",
    "WHERE (amount, id) < (1, 40)": "by_amount",
    "WHERE amount >= 49.5 OR amount < 0": None,
    "ORDER BY id LIMIT 5": "by_id",
    "ORDER BY id DESC LIMIT 5 OFFSET 3": "by_id",
    "WHERE id > 100 ORDER BY id LIMIT 7": "by_id",
    "WHERE who = 'user 1' ORDER BY at DESC LIMIT 4": "by_who",
    "WHERE who = 'user 1' ORDER BY who, at LIMIT 4": "by_who",
    "ORDER BY amount, id LIMIT 30": "by_amount",
    "ORDER BY amount DESC, id DESC LIMIT 30": "by_amount",
    "ORDER BY amount DESC, id LIMIT 30": None,
    "ORDER BY who, at LIMIT 6": "by_who",
    "ORDER BY who NULLS FIRST, at LIMIT 6": None,
    "ORDER BY who DESC, at DESC LIMIT 6": "by_who",
    "WHERE id % 1000 = 1 ORDER BY id LIMIT 3": "by_id",
    "WHERE 10 / (id - 4) > 0 ORDER BY id LIMIT 1": "by_id",
}


DEFINITION = "(SELECT id, who, at, amount FROM events WHERE id % 5 <> 0)"


async def set_up(env: TestEnvironment) -> None:
    """Make the view and wait for its indexes."""
    for sql in SETUP:
        assert "ERROR" not in await env.query("s", sql), sql
    coordinator = env.environment.coordinator
    await until(lambda: all(map(coordinator.is_hydrated, coordinator.as_ofs)))


async def test_ranges_answer_as_scans_do(tmp_path: Path) -> None:
    env = TestEnvironment(tmp_path)
    await env.open()
    try:
        await set_up(env)
        for rest, index in QUERIES.items():
            found = await env.query("s", f"SELECT id FROM shown {rest}")
            scanned = await env.query("s", f"SELECT id FROM {DEFINITION} AS shown {rest}")
            rows, expected = found.splitlines(), scanned.splitlines()
            if "ORDER" not in rest:
                rows, expected = sorted(rows), sorted(expected)
            assert rows == expected, rest
            explained = await env.query("s", f"EXPLAIN SELECT id FROM shown {rest}")
            assert (index is None) == ("read whole" in explained), explained
            assert index is None or f"public.{index} on" in explained, explained
    finally:
        await env.close()


async def test_first_rows_in_order_are_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = TestEnvironment(tmp_path)
    await env.open()
    examined: list[int] = []
    applied = peek._applied

    def counted(relation: Relation, rows: pa.RecordBatch) -> pa.RecordBatch:
        examined.append(rows.num_rows)
        return applied(relation, rows)

    monkeypatch.setattr(peek, "_applied", counted)
    try:
        await set_up(env)
        for first in (0, 1000, 4000):
            examined.clear()
            page = f"SELECT id FROM shown WHERE id > {first} ORDER BY id LIMIT 3"
            assert await env.query("s", page) == "\n".join(
                [*(str(first + i) for i in (1, 2, 3)), "SELECT 3"]
            )
            assert sum(examined) <= 10, examined
        await env.query("s", "DELETE FROM events WHERE id < 4990")
        assert await env.query("s", "SELECT id FROM shown ORDER BY id LIMIT 2") == (
            "4991\n4992\nSELECT 2"
        )
        assert await env.query("s", "SELECT FROM shown WHERE id > 4996") == "SELECT 3"
        await env.query("s", "PREPARE p AS SELECT id FROM shown WHERE id > $1 ORDER BY id LIMIT $2")
        assert await env.query("s", "EXECUTE p (4997, 1)") == "4998\nSELECT 1"
        assert await env.query("s", "EXECUTE p (NULL, 1)") == "SELECT 0"
        rows = "SELECT count(*) FROM shown WHERE (who, at) {} ($1, $2)"
        for name, sign in (("after", ">"), ("before", "<=")):
            await env.query("s", f"PREPARE {name} AS {rows.format(sign)}")
        null = "NULL::timestamp"
        assert await env.query("s", f"EXECUTE after ('user 5', {null})") == "1\nSELECT 1"
        assert await env.query("s", f"EXECUTE before ('user 5', {null})") == "5\nSELECT 1"
        assert await env.query("s", f"EXECUTE after (NULL, {null})") == "0\nSELECT 1"
    finally:
        await env.close()
