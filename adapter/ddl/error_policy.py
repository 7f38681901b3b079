"""The error policy of a materialized view, and the times at which it was changed.

A view's shard has the rows without errors whatever its policy is. So ALTER ... SET (ON ERROR = ...)
needs no other dataflow: from the time of its commit on errors make reads fail, or do not. Earlier
times are read as they were, also after a restart.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from foreshore.catalog.item import AT_COMMIT, Item, Object
from foreshore.catalog.state import with_objects
from foreshore.compute.controller.error_policy import FAILS, ErrorPolicy
from foreshore.kept_definition import SKIP_ERRORS, skips_errors
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.catalog.transaction import Transaction

MOST_CHANGES = 64  # whose times are kept


def error_policy(item: Item) -> ErrorPolicy:
    """Return when errors in the data of a view, or of an index, make reads of it fail."""
    if item.type != "materialized view":
        return FAILS
    return ErrorPolicy(skips_errors(item.create_sql), item.error_policy_changes or ())


def with_policy(view: Item, *, skips: bool) -> Item:
    """Return a view whose policy changes when the transaction commits, if it is another one."""
    if skips_errors(view.create_sql) == skips:
        return view
    sql = view.create_sql + SKIP_ERRORS if skips else view.create_sql.removesuffix(SKIP_ERRORS)
    changes = (*(view.error_policy_changes or ()), AT_COMMIT)[-MOST_CHANGES:]
    return msgspec.structs.replace(view, create_sql=sql, error_policy_changes=changes)


def set_policy_times(
    transaction: "Transaction", changed: Iterable[Object | None], time: Timestamp
) -> None:
    """Let the policies that a transaction changes do so at `time`, its commit's."""
    views: dict[str, Object | None] = {
        item.id: msgspec.structs.replace(
            item,
            error_policy_changes=tuple(
                time if each == AT_COMMIT else each for each in item.error_policy_changes
            ),
        )
        for item in changed
        if isinstance(item, Item) and item.error_policy_changes
    }
    if views:
        transaction.state = with_objects(transaction.state, views)
