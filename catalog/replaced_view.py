"""CREATE OR REPLACE: when a view may be replaced, and what its successor keeps."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.errors import DependentObjectsStillExist, InvalidObjectDefinition, WrongObjectType

V = TypeVar("V")


def check_replaceable(state: State, old: Item, kind: str, depends_on: Collection[str]) -> None:
    """Raise if `old` cannot be replaced by a view of `kind` over the items `depends_on`."""
    if old.type != kind:
        raise WrongObjectType(f'"{old.name}" is not a {kind}')
    if old.id in depends_on:
        raise InvalidObjectDefinition(f'infinite recursion detected in {kind} "{old.name}"')
    dependents = map(state.item, state.dependents.get(old.id, ()))
    others = sorted(
        (each for each in dependents if old.id not in (each.on, each.part_of)),
        key=lambda each: each.oid,
    )
    if others:
        raise DependentObjectsStillExist(
            f"cannot replace {kind} {old.name} because other objects depend on it",
            detail="\n".join(f"{o.kind} {o.name} depends on {kind} {old.name}" for o in others),
        )


def carry_over(
    change: Transaction, old: Item, old_columns: Sequence[str], new: Item, columns: Sequence[str]
) -> None:
    """Give a new view the owner, rights and comments of the one that it replaces.

    Its columns get those of the former columns with their names.
    """
    positions = [old_columns.index(name) + 1 if name in old_columns else None for name in columns]
    change.put(
        msgspec.structs.replace(
            new,
            owner=old.owner,
            comment=old.comment,
            grants=old.grants,
            column_comments=_at(positions, old.column_comments or {}) or msgspec.UNSET,
            column_grants=_at(positions, old.column_grants or {}) or msgspec.UNSET,
        )
    )


def _at(positions: Sequence[int | None], values: Mapping[int, V]) -> dict[int, V]:
    """Return values by columns' positions, given by former ones."""
    return {
        at: values[was] for at, was in enumerate(positions, 1) if was is not None and was in values
    }
