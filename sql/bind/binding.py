"""The binders of expressions and of queries, by which each binds what it has of the other."""

from typing import Final

from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder, Binding, Clause
from foreshore.sql.bind.bound_item import BoundItem
from foreshore.sql.bind.bound_query import BoundQuery, Wanted
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_clause import bind_item
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.query import bind_query
from foreshore.sql.bind.scope import Scope


class _Binding:
    def expressions(self, planning: Planning, scope: Scope, clause: Clause) -> Binder:
        return ExpressionBinder(planning, scope, clause)

    def query(
        self,
        planning: Planning,
        query: ast.Query,
        parent: Scope | None,
        wanted: Wanted = None,
        *,
        locking: bool = False,
    ) -> BoundQuery:
        return bind_query(planning, query, parent, wanted, locking=locking)

    def item(self, planning: Planning, item: ast.FromItem, parent: Scope | None) -> BoundItem:
        return bind_item(planning, item, parent)


BINDING: Final[Binding] = _Binding()
