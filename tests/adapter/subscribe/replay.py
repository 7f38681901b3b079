"""What a client does with a subscription: it keeps a copy, by the rows that it is told."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

Row = tuple[Any, ...]


class Replay:
    """A copy of a collection whose columns are `width` many, the first `key` of them its key.

    `envelope` is that of the statement: None, UPSERT or DEBEZIUM. The copy is as of before `frontier`, which
    the rows of PROGRESS move; the first of them says only where the stream begins.
    """

    def __init__(self, envelope: str | None, width: int, key: int = 1) -> None:
        self._envelope = envelope
        self._width = width
        self._key = key
        self.rows: Counter[Row] = Counter()
        self.frontier = 0
        self.began = False  # whether the first row of PROGRESS has been followed by another
        self.complete: Counter[Row] = Counter()  # as the last row of PROGRESS found it
        self.violations: list[Row] = []
        self._last = 0

    def resume(self) -> int:
        """Go back to the last row of PROGRESS; return the AS OF from which the stream goes on."""
        self.rows = self.complete.copy()
        self.frontier -= 1
        self._last = self.frontier
        return self.frontier

    def take(self, rows: Iterable[Row]) -> None:
        """Take rows of a statement WITH (PROGRESS)."""
        for time, progressed, *rest in rows:
            time = int(time)
            assert time >= self._last, "times go back"
            self._last = time
            if progressed:
                assert rest == [None] * len(rest), rest
                assert time >= self.frontier
                self.began = self.frontier > 0
                self.frontier = time
                self.complete = self.rows.copy()
                continue
            assert time >= self.frontier, "what was announced as complete was not"
            self._change(rest)

    def _change(self, rest: list[Any]) -> None:
        if self._envelope is None:
            diff, *row = rest
            assert diff != 0
            self.rows[tuple(row)] += diff
            assert self.rows[tuple(row)] >= 0, f"{row} goes before it comes"
            if not self.rows[tuple(row)]:
                del self.rows[tuple(row)]
            return
        state, *columns = rest
        key, values = tuple(columns[: self._key]), list(columns[self._key :])
        there = [row for row in self.rows if row[: self._key] == key]
        if state == "key_violation":
            assert values == [None] * len(values)
            self.violations.append(key)
            return
        if self._envelope == "DEBEZIUM":
            half = self._width - self._key
            before, values = values[:half], values[half:]
            assert state in ("insert", "upsert", "delete")
            assert there == ([] if state == "insert" else [(*key, *before)]), (state, there)
        else:
            assert state in ("upsert", "delete")
            assert state == "upsert" or there, f"{key} goes before it comes"
        for gone in there:
            del self.rows[gone]
        if state == "delete":
            assert values == [None] * len(values)
        else:
            self.rows[(*key, *values)] = 1
