"""CREATE OR REPLACE: when a view may be replaced, and the comments that its successor keeps."""

from collections.abc import Collection, Sequence

from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.errors import DependentObjectsStillExist, InvalidObjectDefinition, WrongObjectType


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


def keep_comments(
    change: Transaction, old: Item, old_columns: Sequence[str], new: Item, columns: Sequence[str]
) -> None:
    """Give a new view the comments on the one that it replaces and on its remaining columns."""
    change.comment(new, old.comment or None)
    for position, text in (old.column_comments or {}).items():
        name = old_columns[position - 1]
        if name in columns:
            change.comment_column(change.state.item(new.id), columns, name, text)
