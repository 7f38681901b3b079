"""CREATE OR REPLACE: when a view may be replaced, and what its successor keeps.

A view that nothing depends on may be replaced by any other one. Below other views it stays the same
object with another definition, whose columns begin with the old ones, as PostgreSQL demands.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.errors import (
    DependentObjectsStillExist,
    InvalidObjectDefinition,
    InvalidTableDefinition,
    WrongObjectType,
)
from foreshore.ids import GlobalId
from foreshore.types import RelationDesc

V = TypeVar("V")

_HINT = "Only views over views stay. Drop the others first, and create them again."
_HINT_OF_SINKS = (
    "Create a view of another name, and let the sinks go on with it: ALTER SINK ... SET FROM. A"
    " sink that is dropped and created again leaves old rows in its target."
)


def check_replaceable(state: State, old: Item, kind: str, depends_on: Collection[str]) -> None:
    """Raise if `old` cannot be replaced by a view of `kind` over the items `depends_on`."""
    if old.type != kind:
        raise WrongObjectType(f'"{old.name}" is not a {kind}')
    if {old.id, *(each.id for each in state.items_above(old.id))} & set(depends_on):
        raise InvalidObjectDefinition(f'infinite recursion detected in {kind} "{old.name}"')


def is_used(state: State, old: Item) -> bool:
    """Return whether a view has dependents other than its indexes and parts.

    Raises DependentObjectsStillExist if one of them is no plain view, or is not over plain views
    alone: it is maintained, or was checked against the definition.
    """
    parts = {id for id in state.dependents(old.id) if _is_part(state.item(id), old)}
    above = [each for each in state.items_above(old.id) if each.id not in parts]
    kept = {"view"} if old.type == "view" else set()
    others = sorted((each for each in above if each.type not in kept), key=lambda each: each.oid)
    if others:
        lines = []
        for each in others:
            over = next(filter(None, (_over(state, each, below) for below in (old, *above))), old)
            lines.append(f"{each.kind} {each.name} depends on {over.kind} {over.name}")
        raise DependentObjectsStillExist(
            f"cannot replace {old.kind} {old.name} because other objects depend on it",
            detail="\n".join(lines),
            hint=_HINT_OF_SINKS if any(each.sink for each in others) else _HINT,
        )
    return bool(above)


def _is_part(item: Item, view: Item) -> bool:
    return view.id in (item.on, item.part_of)


def _over(state: State, item: Item, below: Item) -> Item | None:
    return below if item.id in state.dependents(below.id) else None


def check_columns(old: RelationDesc, new: RelationDesc) -> None:
    """Raise InvalidTableDefinition unless the columns of `new` begin with those of `old`."""
    if len(new.names) < len(old.names):
        raise InvalidTableDefinition("cannot drop columns from view")
    for then, now, was, column in zip(  # PostgreSQL's order of checks
        old.names, new.names, old.columns, new.columns, strict=False
    ):
        if then != now:
            raise InvalidTableDefinition(
                f'cannot change name of view column "{then}" to "{now}"',
                hint="Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.",
            )
        if was.type != column.type:
            raise InvalidTableDefinition(
                f'cannot change data type of view column "{then}" from {was.type} to {column.type}'
            )


def with_definition(
    change: Transaction, old: Item, create_sql: str, depends_on: Collection[str], invoker: bool
) -> Item:
    """Give a view another statement over the items `depends_on`; return it."""
    needs = tuple(sorted(map(GlobalId, depends_on)))
    return change.put(
        msgspec.structs.replace(
            change.state.item(old.id),
            create_sql=create_sql,
            depends_on=needs,
            bound=change.state.bindings(needs),
            known=msgspec.UNSET,
            known_keys=msgspec.UNSET,
            keeps_digits=True,
            security_invoker=True if invoker else msgspec.UNSET,
        )
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
