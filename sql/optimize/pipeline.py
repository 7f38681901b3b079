"""The rules in their order: a lowered plan becomes one that gives the same rows at less cost.

    share        what is said twice is bound once, what is used once is put in
    fold         constants, NULLs, the plain form
    pushdown     predicates to their columns; equalities make joins, joins become one
    distinct     DISTINCT of the distinct
      ... as long as something changes, then
    projection   columns that nobody uses

What is nothing but rows of scalars needs none of them (see `rows`).

Each rule keeps the rows of a plan that does not fail, and adds no error but as PostgreSQL would
(see `pushdown`). It may drop one: of a definition that nobody uses, of rows that a predicate takes
away before. No rule looks at data; the same plan is always made the same of.
"""

from foreshore.expr.ir import Relation
from foreshore.expr.lowered import check_lowered
from foreshore.expr.share import allow_depth, share
from foreshore.expr.split import Test, may_fail
from foreshore.sql.optimize.distinct import drop_distinct
from foreshore.sql.optimize.fold import fold
from foreshore.sql.optimize.projection import narrow
from foreshore.sql.optimize.pushdown import push_predicates
from foreshore.sql.optimize.rows import of_rows, rows_of

MOST_ROUNDS = 20  # two or three as a rule; one for each outer join that turns out to be inner


def optimize(relation: Relation, fallible: Test = may_fail) -> Relation:
    """Return a plan for the same rows as the lowered `relation`."""
    allow_depth()
    rows = rows_of(relation)
    if rows is not None:
        return of_rows(rows, fallible)
    for _ in range(MOST_ROUNDS):
        before = relation
        relation = fold(share(relation), fallible)
        relation = push_predicates(relation, fallible)
        relation = drop_distinct(relation)
        if relation == before:
            break
    relation = share(narrow(relation))
    check_lowered(relation)
    return relation
