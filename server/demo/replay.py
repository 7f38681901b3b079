"""The replay of the year: run the statements that record the events between two moments."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from foreshore.server.demo.history import Event, History

_COLUMNS = (
    "id", "carrier", "flight", "tailnum", "origin", "dest", "distance", "sched_dep", "time_hour",
)  # fmt: skip

# Kind of event -> the columns that it sets.
_CHANGES: dict[str, tuple[str, ...]] = {
    "depart": ("dep", "dep_delay"),
    "arrive": ("arr", "arr_delay", "air_time"),
    "correct": ("arr_delay",),
}
_CHANGED: tuple[tuple[LiteralString, LiteralString], ...] = (
    ("dep", "timestamp"), ("dep_delay", "integer"),
    ("arr", "timestamp"), ("arr_delay", "integer"), ("air_time", "integer"),
)  # fmt: skip


def advance(connection: psycopg.Connection[Any], history: History, until: datetime) -> int:
    """Record the events after the database's moment, up to `until`; return how many there were.

    Repeating is safe: a flight is announced once, and all other events are idempotent. So the next
    run completes one that was interrupted.
    """
    row = connection.execute("SELECT max(moment) FROM demo_clock").fetchone()
    assert row is not None
    events = history.between(row[0], until)
    for statement in _statements(connection, events):
        connection.execute(statement)
    connection.execute(
        sql.SQL("UPDATE demo_clock SET moment = {}::timestamp").format(sql.Literal(str(until)))
    )
    return len(events)


def _statements(connection: psycopg.Connection[Any], events: list[Event]) -> Iterator[sql.Composed]:
    announced = [event.flight for event in events if event.what == "announce"]
    if announced:
        known = connection.execute(
            sql.SQL("SELECT id FROM flights WHERE id IN ({})").format(
                sql.SQL(", ").join(sql.Literal(flight["id"]) for flight in announced)
            )
        ).fetchall()
        present = {row[0] for row in known}
        rows = [
            [_text(flight[column]) for column in _COLUMNS]
            for flight in announced
            if flight["id"] not in present
        ]
        if rows:
            yield sql.SQL("INSERT INTO flights ({}) VALUES {}").format(
                sql.SQL(", ").join(map(sql.Identifier, _COLUMNS)), _values(rows)
            )
    changes: dict[object, dict[str, object]] = {}
    for event in events:  # in their order: a correction replaces the earlier value
        for column in _CHANGES.get(event.what, ()):
            changes.setdefault(event.flight["id"], {})[column] = _text(event.flight[column])
    if changes:
        # One statement writes all changes of a flight: no reader sees one that landed in the air.
        yield sql.SQL(
            "UPDATE flights SET {} FROM (VALUES {}) AS news (id, {}) WHERE flights.id = news.id"
        ).format(
            sql.SQL(", ").join(
                sql.SQL("{0} = coalesce(news.{0}::{1}, flights.{0})").format(
                    sql.Identifier(column), sql.SQL(type)
                )
                for column, type in _CHANGED
            ),
            _values(
                [
                    [id, *(known.get(column) for column, _ in _CHANGED)]
                    for id, known in changes.items()
                ]
            ),
            sql.SQL(", ").join(sql.Identifier(column) for column, _ in _CHANGED),
        )
    cancelled = [event.flight["id"] for event in events if event.what == "cancel"]
    if cancelled:
        yield sql.SQL("DELETE FROM flights WHERE id IN ({})").format(
            sql.SQL(", ").join(map(sql.Literal, cancelled))
        )


def _values(rows: list[list[object]]) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, row))) for row in rows
    )


def _text(value: object) -> object:
    """Return a datetime as text, which the server parses to the column's type; others unchanged."""
    return str(value) if isinstance(value, datetime) else value
