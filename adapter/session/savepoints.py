"""Savepoints: what a transaction had staged, and what its session held, when each was set."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from foreshore.adapter.session.prepared import BoundPortal
from foreshore.adapter.transaction.locks import Mark
from foreshore.adapter.transaction.transaction import Staged
from foreshore.errors import InvalidSavepoint


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What a transaction goes back to."""

    name: str
    staged: Staged
    variables: tuple[dict[str, str], dict[str, str]]
    portals: Collection[BoundPortal]  # those that were open
    locks: Mark
    advisory: int  # the number of advisory locks of the transaction


def find_savepoint(savepoints: Sequence[Savepoint], name: str) -> int:
    """Return the place of the latest savepoint `name`."""
    for place in reversed(range(len(savepoints))):
        if savepoints[place].name == name:
            return place
    raise InvalidSavepoint(f'savepoint "{name}" does not exist')
