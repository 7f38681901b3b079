"""SELECT as a statement: its query, AS OF time, row locks and init plans."""

from dataclasses import replace

from foreshore.errors import FeatureNotSupported
from foreshore.sql import ast
from foreshore.sql.bind.locking import bind_locking_query
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.plan import Select


def bind_select(planning: Planning, tree: ast.SelectStatement) -> Select:
    """Return the plan of a SELECT that is not part of another statement."""
    as_of = None if tree.as_of is None else bind_as_of(planning, tree.as_of)
    planning.changes = []
    # A locking query reads the newest rows, and a query with its own locks has no init plans.
    init_plans = planning.init_plans = None if as_of or tree.query.locks else {}
    query, locks = bind_locking_query(planning, tree.query)
    if locks is not None and as_of is not None:
        raise FeatureNotSupported(
            f"{locks.strength} AS OF a time is not supported",
            position=tree.query.locks[0].at + 1,
        )
    query = replace(
        query,
        changes=tuple(planning.changes),
        init_plans=(*planning.written.values(), *(init_plans or {}).values()),
    )
    return Select(query, as_of, locks)
