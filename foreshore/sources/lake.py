"""The columns of a lake table as a source has recorded them, and how the table differs now."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foreshore.sources.outputs import Column


@dataclass(frozen=True, slots=True)
class LakeDetails:
    """The details of an output that is a lake table.

    `ids` are those of its columns by their names here, if the format has ids. `number` counts how
    often the relation was refreshed, which has rows then.
    """

    ids: Mapping[str, int] | None = None
    number: int = 0

    @classmethod
    def read(cls, text: str) -> "LakeDetails":
        """Return the details of a text; earlier ones have the ids alone."""
        if not text:
            return cls()
        found = json.loads(text)
        if "ids" in found and not isinstance(found["ids"], int):
            return cls(found["ids"], found["number"])
        return cls(found)

    def text(self) -> str:
        """Return the details as a text."""
        return json.dumps({"ids": self.ids, "number": self.number})


@dataclass(frozen=True, slots=True)
class LakeChanges:
    """How the columns of a table differ from those of its relation, by the relation's names."""

    added: Sequence[Column]
    dropped: Sequence[str]
    retyped: Sequence[Column]

    def text(self) -> str | None:
        """Return what has changed in a few words; None if nothing has."""
        said = [f'it has the new column "{each.name}"' for each in self.added]
        said += [f'column "{name}" was dropped' for name in self.dropped]
        said += [f'column "{each.name}" has the type {each.type}' for each in self.retyped]
        return ", ".join(said) or None


def lake_changes(
    types: Mapping[str, str], known: LakeDetails, columns: Sequence[Column], now: LakeDetails
) -> LakeChanges:
    """Return the difference between the columns of a relation and those that its table has.

    `types` are those of the relation. Columns are the same if they have the same id, or without ids
    the same name.
    """
    ours: dict[str | int, str] = {(known.ids or {}).get(name, name): name for name in types}
    theirs = {(now.ids or {}).get(each.name, each.name): each for each in columns}
    there = {ours[id]: each for id, each in theirs.items() if id in ours}
    return LakeChanges(
        [each for id, each in theirs.items() if id not in ours],
        [name for name in types if name not in there],
        [Column(name, each.type) for name, each in there.items() if each.type != types[name]],
    )
