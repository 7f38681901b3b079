"""Planners: how a statement looks names up, and has other statements planned."""

from collections.abc import Sequence
from typing import Protocol

from foreshore.adapter.definitions.catalog_reader import SessionCatalog
from foreshore.adapter.plans.access_path import PeekPlan
from foreshore.adapter.plans.prepared import Prepared
from foreshore.catalog.state import State
from foreshore.ids import GlobalId
from foreshore.sql.parse.parse import Statement as Syntax
from foreshore.sql.plan import Plan, Query
from foreshore.types import RelationDesc


class Planner(Protocol):
    """Plans statements over the catalog as the running transaction sees it."""

    @property
    def state(self) -> State:
        """The catalog's state."""

    def reader(self) -> SessionCatalog:
        """Return the catalog, with views as they are defined."""

    def search_path(self) -> tuple[str, ...]:
        """Return the schemas searched, in order."""

    async def ready(self, prepared: Prepared) -> None:
        """Plan a statement, unless its plan is still valid."""

    async def plan_syntax(self, syntax: Syntax) -> Prepared:
        """Return a planned statement without parameters."""

    def known(
        self, text: str, parameter_oids: Sequence[int] = (), number: int = 0
    ) -> Prepared | None:
        """Return a statement of a text if some session has a plan valid in this one."""

    def remember(
        self, prepared: Prepared, text: str, parameter_oids: Sequence[int] = (), number: int = 0
    ) -> None:
        """Keep the plan of a statement for all sessions, unless only this one sees its catalog."""

    def named_desc(self, plan: Plan) -> RelationDesc | None:
        """Return the columns of the cursor of FETCH, or of the statement of EXECUTE."""

    def plan_query(self, query: Query) -> PeekPlan:
        """Return how `query` is answered on the session's cluster."""

    def plan_aside(self, query: Query) -> PeekPlan:
        """Return how a query over rows that a statement has is answered, in this process."""

    def peek_without_indexes(
        self, prepared: Prepared, younger: frozenset[GlobalId] = frozenset()
    ) -> PeekPlan:
        """Return how a statement is answered from shards only, at times that indexes lack."""

    def verify_sql_round_trip(self, before: State) -> None:
        """Raise if an item defined since `before` differs from its statement."""
