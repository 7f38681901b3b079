"""Comments on parts of relations: columns and constraints."""

from collections.abc import Sequence

import msgspec

from foreshore.catalog.dropped import is_required
from foreshore.catalog.item import Item
from foreshore.catalog.transaction import Transaction
from foreshore.errors import InsufficientPrivilege, UndefinedColumn, WrongObjectType


def comment_column(
    change: Transaction, item: Item, columns: Sequence[str], name: str, text: str | None
) -> Item:
    """Set the comment on a column of `item`, which has these columns; None removes it."""
    if item.type == "index":
        raise WrongObjectType(
            f'cannot set comment on relation "{item.name}"',
            detail="This operation is not supported for indexes.",
        )
    if name not in columns:
        raise UndefinedColumn(f'column "{name}" of relation "{item.name}" does not exist')
    position = columns.index(name) + 1
    comments = dict(item.column_comments or {})
    comments.pop(position, None)
    if text:
        comments[position] = text
    return change.put(msgspec.structs.replace(item, column_comments=comments or msgspec.UNSET))


def comment_constraint(change: Transaction, table: Item, oid: int, text: str | None) -> Item:
    """Set the comment on the constraint `oid` of a table; None removes it."""
    if is_required(table):
        raise InsufficientPrivilege(f"permission denied: {table.name} is a system {table.kind}")
    keys = {each.oid for each in table.constraints}
    keys |= {each.oid for each in table.foreign_keys or ()}
    kept = {at: said for at, said in (table.constraint_comments or {}).items() if at in keys}
    kept.pop(oid, None)
    comments = {**kept, oid: text} if text else kept
    return change.put(msgspec.structs.replace(table, constraint_comments=comments or msgspec.UNSET))
