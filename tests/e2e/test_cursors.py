"""Cursors that scroll, are held and are binary, tried on Foreshore and on PostgreSQL alike."""

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.harness import Server
from tests.wire.raw import Raw, fields

Connection = psycopg.Connection[Any]


@pytest.fixture
def session(url: str) -> Iterator[Connection]:
    with psycopg.connect(url) as connection:
        connection.execute("SET client_min_messages = error")
        yield connection
        connection.rollback()


def rows(session: Connection, statement: str) -> list[Any]:
    """Return the first values of the rows of a statement."""
    return [value for value, *_ in session.execute(statement.encode()).fetchall()]


class Model:
    """The rows 1 to `number`, and the place of a cursor: 0 is before, `number` + 1 behind them."""

    def __init__(self, number: int) -> None:
        self.number, self.place = number, 0

    def fetch(self, direction: str, count: int | None) -> list[int]:
        """Return the rows of a FETCH; `count` of None is ALL."""
        if count is not None and count < 0 and direction in ("forward", "backward"):
            return self.fetch({"forward": "backward", "backward": "forward"}[direction], -count)
        if direction == "absolute":
            assert count is not None
            return self._to(count if count >= 0 else self.number + 1 + count)
        if direction == "relative" or count == 0:
            return self._to(self.place + (count or 0))
        step = 1 if direction == "forward" else -1
        found: list[int] = []
        while count is None or len(found) < count:
            self.place = min(max(self.place + step, 0), self.number + 1)
            if not 1 <= self.place <= self.number:
                break
            found.append(self.place)
        return found

    def _to(self, place: int) -> list[int]:
        self.place = min(max(place, 0), self.number + 1)
        return [self.place] if 1 <= self.place <= self.number else []


@pytest.mark.parametrize("number", [0, 1, 7, 30_000])
def test_scrolling_cursor_goes_where_postgresql_goes(session: Connection, number: int) -> None:
    chance = random.Random(number)
    wide = "repeat('x', 200)"  # many rows go to a scratch file
    for scroll in ("SCROLL", ""):
        query = f"SELECT i, {wide} FROM generate_series(1, {number}) AS i ORDER BY i"
        session.execute(f"DECLARE c {scroll} CURSOR FOR {query}")
        model = Model(number)
        for _ in range(60):
            direction = chance.choice(("forward", "backward", "absolute", "relative"))
            reach = chance.choice((3, 10, max(number, 1)))
            count: int | None = chance.randint(-reach, reach)
            if direction in ("forward", "backward") and chance.random() < 0.1:
                count = None
            expected = model.fetch(direction, count)
            where = f"{direction} {'ALL' if count is None else count} FROM c"
            if chance.random() < 0.3:
                tag = session.execute(f"MOVE {where}").statusmessage
                assert tag == f"MOVE {len(expected)}", where
            else:
                assert rows(session, f"FETCH {where}") == expected, where
        session.execute("CLOSE c")


def test_words_for_directions(session: Connection) -> None:
    session.execute("DECLARE next SCROLL CURSOR FOR SELECT * FROM generate_series(1, 5)")
    for words, expected in (
        ("LAST FROM", [5]),
        ("PRIOR IN", [4]),
        ("FIRST", [1]),
        ("", [2]),
        ("NEXT", [3]),
        ("BACKWARD", [2]),
        ("+2", [3, 4]),
        ("-3", [3, 2, 1]),
    ):
        assert rows(session, f"FETCH {words} next") == expected


@pytest.mark.parametrize("where", ["PRIOR", "FIRST", "FORWARD 0", "BACKWARD ALL", "RELATIVE -1"])
def test_cursor_without_scroll_goes_forward_only(session: Connection, where: str) -> None:
    query = "SELECT * FROM generate_series(1, 9)"
    session.execute(f"DECLARE c NO SCROLL CURSOR FOR {query}")
    assert rows(session, "FETCH 2 FROM c") == [1, 2]
    assert rows(session, "FETCH RELATIVE 2 FROM c") == [4]
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="can only scan forward"):
        session.execute(f"FETCH {where} FROM c")


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [
        ("DECLARE c SCROLL NO SCROLL CURSOR FOR SELECT 1", "42P11"),
        ("DECLARE c INSENSITIVE ASENSITIVE CURSOR FOR SELECT 1", "42P11"),
        ("DECLARE c SCROLL CURSOR FOR SELECT * FROM locked FOR UPDATE", "0A000"),
        ("DECLARE c INSENSITIVE CURSOR FOR SELECT * FROM locked FOR UPDATE", "42P11"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM locked FOR UPDATE", "0A000"),
    ],
)
def test_options_that_do_not_go_together(
    session: Connection, statement: str, sqlstate: str
) -> None:
    session.execute("CREATE TABLE locked (i int)")
    with pytest.raises(psycopg.Error) as caught:
        session.execute(statement.encode())
    assert caught.value.sqlstate == sqlstate


def test_held_cursor_outlives_its_transaction(session: Connection) -> None:
    query = "SELECT i, repeat('x', 500) FROM generate_series(1, 20000) AS i ORDER BY i"
    session.execute(f"DECLARE held SCROLL CURSOR WITH HOLD FOR {query}")
    session.execute("DECLARE other CURSOR FOR SELECT 1")
    assert rows(session, "FETCH 2 FROM held") == [1, 2]
    session.commit()
    assert rows(session, "FETCH 2 FROM held") == [3, 4]
    found = session.execute(
        "SELECT name, is_holdable, is_binary, is_scrollable FROM pg_cursors"
    ).fetchall()
    assert found == [("held", True, False, True)]
    session.rollback()
    assert rows(session, "FETCH LAST FROM held") == [20000]
    assert rows(session, "FETCH ABSOLUTE 9999 FROM held") == [9999]
    session.execute("CLOSE held")
    with pytest.raises(errors.InvalidCursorName):
        session.execute("FETCH FROM held")


def test_binary_cursor_sends_binary_values(session: Connection) -> None:
    session.execute("DECLARE c BINARY CURSOR FOR VALUES (1), (258)")
    result = session.pgconn.exec_(b"FETCH ALL FROM c")
    assert result.fformat(0) == 1
    assert [result.get_value(i, 0) for i in range(2)] == [b"\0\0\0\1", b"\0\0\1\2"]


def test_fetch_and_execute_share_a_portal(server: Server) -> None:
    raw = Raw(server.port)
    raw.send("Q", b"BEGIN\0")
    raw.until("Z")
    raw.send("P", b"s\0SELECT * FROM generate_series(1, 9)\0\0\0")
    raw.send("B", b"p\0s\0\0\0\0\0\0\0")
    raw.send("Q", b"FETCH 2 FROM p\0")
    raw.send("E", b"p\0" + (2).to_bytes(4))
    raw.send("S")
    raw.send("Q", b"FETCH BACKWARD 2 FROM p; DECLARE p CURSOR FOR SELECT 1\0")
    answers = [raw.until("Z") for _ in range(3)]
    values = [[body[6:].decode() for code, body in each if code == "D"] for each in answers]
    assert values == [["1", "2"], ["3", "4"], ["3", "2"]]
    assert answers[1][-2] == ("s", b"")
    assert fields(answers[2][-2][1])["C"] == "42P03"


def test_cursor_cannot_be_run_after_failed_fetch(session: Connection) -> None:
    session.execute(
        "DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT i FROM generate_series(1, 9) i"
    )
    assert rows(session, "FETCH 3 FROM c") == [1, 2, 3]
    session.execute("SAVEPOINT s")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="can only scan forward"):
        session.execute("FETCH PRIOR FROM c")
    session.execute("ROLLBACK TO s")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match='portal "c" cannot be run'):
        session.execute("FETCH NEXT FROM c")
    session.execute("ROLLBACK TO s")
    session.execute("CLOSE c")
