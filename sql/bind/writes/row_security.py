"""Row-level security of statements that write: the rows that they find, and those that they make.

As in PostgreSQL, the policies of SELECT count too if the statement needs the right SELECT on the
table, so that nobody can write a row that they could not have read.
"""

from foreshore.expr.ir import Call, Get, Let, Literal, LocalGet, Relation, Scalar
from foreshore.item_view import ItemView
from foreshore.policy import PolicyCommand, PolicyView
from foreshore.sql.bind.bound_query import filtered
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.result import lower_and_optimize, query_over
from foreshore.sql.bind.row_security import (
    any_of,
    chosen,
    policies_of,
    policy_condition,
    securing,
    visible,
)
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.sets import UNIT
from foreshore.sql.bind.with_clause import Lets
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.sql.plan import RowCheck
from foreshore.types import BOOL

About = str


def reads_target(scope: Scope) -> bool:
    """Return whether a statement needs the right SELECT on its target, whose row is `scope`'s."""
    entries = (origin.entry for origin in scope.origins.values())
    entry = next(entries, None)
    return entry is not None and entry.need() is not None


class TargetRows:
    """The rows of a statement's target, of which it is known at its end which ones it may find.

    `relation` stands for them while it is bound; `lets` gives it its meaning.
    """

    def __init__(self, planning: Planning, view: ItemView) -> None:
        self._planning, self._view = planning, view
        columns = view.desc.columns
        self._table = Get(view.id, columns, view.desc.keys)
        self._let: int | None = None
        self.relation: Relation = self._table
        if policies_of(planning, view) is not None:
            self._let = planning.new_let()
            self.relation = LocalGet(self._let, columns)

    def lets(self, lets: Lets, *commands: PolicyCommand) -> Lets:
        """Return `lets` with the rows that policies show to all `commands`."""
        if self._let is None:
            return lets
        shown = visible(self._planning, self._view, self._table, commands)
        return (*lets, Let(self._let, shown, UNIT))


def new_row_checks(
    planning: Planning, view: ItemView, command: PolicyCommand, *, selects: bool
) -> tuple[RowCheck, ...]:
    """Return the conditions on rows that INSERT or UPDATE makes."""
    found = row_checks(planning, view, command, "new row")
    if selects:
        found += row_checks(planning, view, "select", "new row", using=True)
    return tuple(dict.fromkeys(found))


def row_checks(
    planning: Planning,
    view: ItemView,
    command: PolicyCommand,
    about: About,
    *,
    using: bool = False,
) -> tuple[RowCheck, ...]:
    """Return the conditions of policies for a command: WITH CHECK, or else USING."""
    policies = policies_of(planning, view)
    if policies is None:
        return ()

    def text_of(policy: PolicyView) -> str | None:
        check = None if using else policy.texts.check
        return policy.texts.using if check is None else check

    permissive, restrictive = chosen(policies, command)
    with securing(planning, view):
        conditions = [
            policy_condition(planning, view, each, text)
            for each in permissive
            if (text := text_of(each)) is not None
        ]
        if not conditions:
            return (_check(view, Literal(False, BOOL), about, None),)
        return (
            _check(view, any_of(conditions), about, None),
            *(
                _check(view, policy_condition(planning, view, each, text), about, each.name)
                for each in restrictive
                if (text := text_of(each)) is not None
            ),
        )


def _check(view: ItemView, condition: Scalar, about: About, policy: str | None) -> RowCheck:
    holds = Call("is_true", (condition,), BOOL)
    if not has_subquery(condition):
        return RowCheck(about, policy, holds)  # type: ignore[arg-type]
    rows = LocalGet(0, view.desc.columns)
    broken = filtered(rows, Call("not", (holds,), BOOL))
    query = query_over(lower_and_optimize(broken), view.desc.names)
    return RowCheck(about, policy, None, query)  # type: ignore[arg-type]
