"""The limit of how much a query may read, `max_scan_size`, which only superusers may set."""

from functools import lru_cache

from foreshore.adapter.plans.access_path import Bulk, InProcess, PeekPlan
from foreshore.adapter.statement.context import StatementContext
from foreshore.result_limits import ScanTooLarge
from foreshore.sizes import bytes_of

_bytes = lru_cache(64)(bytes_of)


def refuse_large_scan(context: StatementContext, plan: PeekPlan) -> None:
    """Raise ScanTooLarge if a query would read too much of what is stored.

    The estimate is the size of all collections that it reads whole or in part; look-ups by keys and
    reads of indexes are not counted.
    """
    limit = context.variables["max_scan_size"]
    if limit == "0" or not isinstance(plan.path, Bulk | InProcess):
        return
    size = sum(
        context.tables.storage.size_bytes(id)
        for id in plan.shards
        if id in context.tables.capabilities
    )
    if size > _bytes(limit):
        raise ScanTooLarge(size, _bytes(limit))
