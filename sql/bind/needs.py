"""The rights that a statement needs, recorded while it is bound.

Each relation that a statement names has an `Entry`, as in PostgreSQL's range table, which collects
the columns that are read. A scope knows from which entries its columns come (`Scope.origins`), so a
reference to a column finds its entry through joins and their aliases.

Views are needed by their names; what a view's own query needs is recorded where the view is
planned, and added by whoever compares needs with rights (`catalog/needs.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from foreshore.ids import GlobalId
from foreshore.item_view import ItemView
from foreshore.privileges import Need, Privilege


@dataclass(eq=False, slots=True)
class Entry:
    """A relation that a statement names.

    `reads`: the right SELECT is needed even if no column is read, which is so for all relations but
    the target of a change.
    """

    object: GlobalId
    names: tuple[str | None, ...]  # present ones of its columns; None: it was dropped
    reads: bool
    by_caller: bool
    columns: set[int] = field(default_factory=set)  # those that are read, by their positions
    whole: bool = False  # a system column is read, for which the right on the relation is needed

    def read_all(self) -> None:
        """Note that all columns are read."""
        self.columns.update(range(len(self.names)))

    def need(self) -> Need | None:
        """Return the right to read that is needed, if any."""
        if not (self.columns or self.reads or self.whole):
            return None
        if self.whole:
            return Need(self.object, "SELECT", by_caller=self.by_caller)
        named = (self.names[each] for each in sorted(self.columns))
        names = tuple(name for name in named if name is not None)
        return Need(self.object, "SELECT", names, any_column=not names, by_caller=self.by_caller)


class Origin(NamedTuple):
    """A column of a relation that a statement names."""

    entry: Entry
    position: int


Origins: TypeAlias = Mapping[int, Origin]  # by the position of a column in a row


def moved(origins: Origins, by: int) -> Origins:
    """Return the origins of columns that begin `by` positions later."""
    return {index + by: origin for index, origin in origins.items()}


class Needs:
    """The rights that a statement needs, as far as it is bound."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._others: dict[Need, None] = {}
        self.depth = 0  # of users' functions whose bodies are being bound

    def entry(self, view: ItemView, *, reads: bool = True) -> Entry:
        """Return a new entry of a relation."""
        names = view.present or view.desc.names
        entry = Entry(view.id, names, reads, self.depth > 0)
        self._entries.append(entry)
        return entry

    def add(
        self,
        object: GlobalId | str,
        privilege: Privilege,
        columns: Iterable[str] = (),
        *,
        any_column: bool = False,
        instead: tuple[Privilege, ...] = (),
        by_caller: bool = False,
    ) -> None:
        """Note that a right on an object is needed, or on some of its columns."""
        by_caller = by_caller or self.depth > 0
        names = tuple(columns)
        self._others[Need(object, privilege, names, any_column, instead, by_caller)] = None

    def change(self, view: ItemView, privilege: Privilege, positions: Iterable[int]) -> None:
        """Note that INSERT or UPDATE gives values to columns; if to none, one right suffices."""
        names = tuple(view.desc.names[each] for each in positions)
        self.add(view.id, privilege, names, any_column=not names)

    def clear(self) -> None:
        """Forget all needs."""
        self._entries.clear()
        self._others.clear()

    def all(self) -> tuple[Need, ...]:
        """Return what is needed, each right once, in the order of the text."""
        reads = (need for entry in self._entries if (need := entry.need()) is not None)
        return tuple(dict.fromkeys((*self._others, *reads)))
