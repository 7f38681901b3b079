"""What names mean to a transaction: the same from its first read on, whatever others define.

Planning looks names up in the catalog, and asks what the items found mean. What it was answered is
kept with the plan (`NameReads`): a name that means nothing counts as well, since a relation made
later may hide the one that was found. So a plan is what it would be over any state of the catalog
that answers the same, and only these answers have to be compared, never two plans.

A transaction relies on the meanings of its statements as it does on the rows that they have read
(`Relied`). They are those of the state at which it chose its time, and move forward as that does.
A comment, an owner or how far back something can be read is no meaning; nor are names below a view,
which keeps meaning what it was made of.

The transaction's own changes of the catalog are left out of all this: what is compared is what it
would have been answered without them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from foreshore.catalog.catalog import Catalog, Planned
from foreshore.catalog.item import Item, Object
from foreshore.catalog.state import PERMANENT, Part, State
from foreshore.errors import MeaningChanged
from foreshore.ids import GlobalId

NameKey: TypeAlias = tuple[str, str | None, str]  # as in State.names
# By name the id that has it, by id what the item means; None: there is none.
Found: TypeAlias = dict[NameKey | GlobalId, "str | Planned | None"]

_NOWHERE = State()


@dataclass(eq=False, slots=True)
class NameReads:
    """What one statement's names were found to mean.

    They are so in every state with `part` as its permanent one; None: that is to be looked up.
    """

    part: Part | None = None
    found: Found = field(default_factory=dict)

    def named(self) -> Iterator[GlobalId]:
        """Yield the items that names were found to mean."""
        for key, found in self.found.items():
            if not isinstance(key, tuple):
                yield key
            elif key[0] == "item" and isinstance(found, str):
                yield cast(GlobalId, found)

    def changed(self, state: State, planned: Mapping[GlobalId, Planned]) -> str | None:
        """Return a name that means something else in `state`, None if there is none."""
        if self.part is state.parts[PERMANENT]:
            return None
        return _changed(self.found, state, planned)


@dataclass(eq=False, slots=True)
class Lookups:
    """Takes note of what planning asks of the catalog, before the transaction's own changes.

    `part` is the permanent one of that state, None where the transaction has changed a state of
    before; `absent` are the schemas of the search path that are not there.
    """

    state: State
    planned: Mapping[GlobalId, Planned]
    part: Part | None
    absent: tuple[NameKey, ...]
    found: Found = field(default_factory=dict)

    def meanings(self, *, names_only: bool = False) -> NameReads:
        """Return what has been found; with `names_only` not what the items mean."""
        if not names_only:
            return NameReads(self.part, self.found)
        return NameReads(self.part, {k: v for k, v in self.found.items() if isinstance(k, tuple)})

    def name(self, key: NameKey) -> None:
        """Take note that an object was sought by its name."""
        self.found[key] = self.state.names.get(key)

    def by_path(self) -> None:
        """Take note that a name was sought along the search path."""
        for key in self.absent:
            self.name(key)

    def item(self, id: GlobalId) -> None:
        """Take note that it was asked what an item means."""
        self.found[id] = self.planned.get(id)


class Relied:
    """What a transaction relies on: that all its names mean what they do in one state."""

    __slots__ = ("_found", "_planned", "_state")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._state = _NOWHERE
        self._planned: Mapping[GlobalId, Planned] = {}
        self._found: Found = {}

    def __bool__(self) -> bool:
        """Whether there is anything that may change."""
        return bool(self._found)

    def add(self, meanings: NameReads, catalog: Catalog, *, fixed: bool) -> None:
        """Rely on what a statement's names mean; raises MeaningChanged if that is something else.

        The state is the present one, of `catalog`, until the transaction has a time: then it is
        `fixed`.
        """
        if not fixed:
            self.move(catalog)
        self.check(meanings)
        self._found.update(meanings.found)

    def check(self, meanings: NameReads) -> None:
        """Raise MeaningChanged if a statement's names mean something else than in the state."""
        changed = meanings.changed(self._state, self._planned)
        if changed is not None:
            raise MeaningChanged(changed)

    def move(self, catalog: Catalog) -> None:
        """Let the state be the present one; raises MeaningChanged if something is not the same."""
        changed = self.changed(catalog.state, catalog.planned)
        if changed is not None:
            raise MeaningChanged(changed)
        self._state, self._planned = catalog.state, catalog.planned

    def moves(self, catalog: Catalog) -> bool:
        """Let the state be the present one if all is the same there; return whether it is."""
        try:
            self.move(catalog)
        except MeaningChanged:
            return False
        return True

    def changed(self, state: State, planned: Mapping[GlobalId, Planned]) -> str | None:
        """Return a name that means something else in `state`, None if there is none."""
        if self._state.parts[PERMANENT] is state.parts[PERMANENT]:
            return None
        return _changed(self._found, state, planned)


def _changed(found: Found, state: State, planned: Mapping[GlobalId, Planned]) -> str | None:
    for key, known in found.items():
        if isinstance(key, tuple):
            if state.names.get(key) != known:
                return key[2]
            continue
        now, item = planned.get(key), state.get(key)
        if now is not known and not _is_same(item, known, now):
            return item.name if isinstance(item, Item) else key
    return None


def _is_same(item: Object | None, known: object, now: Planned | None) -> bool:
    """Whether an item that has been planned anew, as one below it was altered, means the same."""
    if not isinstance(item, Item) or not isinstance(known, Planned) or now is None:
        return False
    if item.type == "materialized view":  # its contents are its own, and go on
        return now.desc == known.desc
    return now == known
