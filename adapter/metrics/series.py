"""The series of a metric: its values by labels, kept up to date by the changes of a relation."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from foreshore.adapter.services.metrics import Labels
from foreshore.errors import DatabaseError

Change: TypeAlias = tuple[Labels, str | None, int]  # labels, the value's text, copies
MOST_VALUES = 2  # for each series that there may be, as rows may have the same labels for a while
MOST_PENDING = 2 * MOST_VALUES  # changes of one time for each series: all old values and all new


class Series:
    """The values of a metric with at most `most` combinations of labels.

    Changes are taken as they come, and count once all of their time are there (`complete`), or if
    they are many more than the series.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Labels, Counter[str | None]] = {}
        self._distinct = 0  # values, over all labels
        self._pending: list[Change] = []

    def add(self, changes: Iterable[Change]) -> None:
        """Take changes; raises DatabaseError if they are too many."""
        self._pending += changes
        if len(self._pending) > MOST_PENDING * self._most + 1:
            self.complete()

    def complete(self) -> None:
        """Let all changes count; raises DatabaseError if there are too many series or values."""
        pending, self._pending = self._pending, []
        for labels, value, copies in pending:
            values = self._values.setdefault(labels, Counter())
            self._distinct += value not in values
            values[value] += copies
            if not values[value]:
                del values[value]
                self._distinct -= 1
                if not values:
                    del self._values[labels]
        if len(self._values) > self._most:
            raise DatabaseError(
                f"the metric has more than {self._most} series",
                sqlstate="54000",
                hint="Give it fewer labels, or a greater MAX SERIES.",
            )
        if self._distinct > MOST_VALUES * self._most:
            raise DatabaseError(
                "the metric has too many rows with the same labels",
                sqlstate="54000",
                hint="Each series has one row: give it more labels, or group the rows in a view.",
            )

    def clear(self) -> None:
        """Forget all values."""
        self._values, self._pending, self._distinct = {}, [], 0

    def __len__(self) -> int:
        return len(self._values)

    def shown(self) -> Sequence[tuple[Labels, float]]:
        """Return each series with its value, but those of several rows or without a value."""
        return [
            (labels, float(value))
            for labels, values in self._values.items()
            if len(values) == 1
            for value, copies in values.items()
            if copies == 1 and value is not None
        ]
