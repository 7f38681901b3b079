"""The optimizer: apply the rules in order to a lowered plan.

    share        bind repeated expressions once, inline those used once
    fold         constants, NULLs, the plain form
    pushdown     predicates to their columns; equalities become joins, joins are merged
    ranks        keep only the first rows where a predicate asks for them by number
    distinct     remove redundant DISTINCT
      ... repeated while the plan changes, then
    projection   remove unused columns

Relations that are plain lists of rows need none of these (see `rows`).

Each rule preserves the rows of a plan that does not fail, and adds no error except as PostgreSQL
does (see `pushdown`). It may remove an error: of an unused definition, or of rows that a predicate
removes first. No rule reads data, and the result is deterministic.
"""

from foreshore.deep_trees import allow_depth
from foreshore.expr.columns import keeping_columns
from foreshore.expr.ir import Call, Relation
from foreshore.expr.lowered import check_lowered
from foreshore.expr.share import share
from foreshore.expr.split import Test, may_fail
from foreshore.sql.optimize.distinct import drop_distinct
from foreshore.sql.optimize.fold import fold
from foreshore.sql.optimize.projection import narrow
from foreshore.sql.optimize.pushdown import push_predicates
from foreshore.sql.optimize.ranks import keep_first_rows
from foreshore.sql.optimize.rows import of_rows, rows_of

BARRIER = "row_security"  # a condition that is always true (sql/bind/row_security.py)
MAX_ROUNDS = 20  # usually two or three suffice; each outer join that becomes inner adds one


def stays(call: Call) -> bool:
    """Whether a call must not be moved: it may fail, or is the barrier of row-level security."""
    return call.function == BARRIER or may_fail(call)


def optimize(relation: Relation, fallible: Test = stays) -> Relation:
    """Return a plan for the same rows as the lowered `relation`."""
    allow_depth()
    rows = rows_of(relation)
    if rows is not None:
        return of_rows(rows, fallible)
    with keeping_columns():
        for _ in range(MAX_ROUNDS):
            before = relation
            relation = fold(share(relation), fallible)
            relation = push_predicates(relation, fallible)
            relation = keep_first_rows(relation, fallible)
            relation = drop_distinct(relation)
            if relation == before:
                break
        relation = share(narrow(relation))
        check_lowered(relation)
    return relation
