"""The catalog: the current state and the plan of each item.

`State` is durable and has names and definitions. `Planned` is what the adapter's planner made of an
item's definition; it is made again at every start. Both change together, in `commit`, after the new
state's rows are durable, so a reader sees a DDL statement completely or not at all. Both are
immutable, so a caller that holds them has a consistent view of the catalog.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.constraint import Constraint, Unique
from foreshore.expr.ir import Relation, Scalar
from foreshore.ids import GlobalId
from foreshore.sequence import Generated, Sequence
from foreshore.types import RelationDesc


@dataclass(frozen=True, slots=True)
class Planned:
    """The planned definition of an item.

    `definition` is the lowered relation of a view, a materialized view or a subscription, with
    views expanded. It is None for a table, which has `defaults` and `constraints`. `key` is an
    index's, over the columns of its relation. If `depends_on_zone`, a view's definition is that in
    UTC, and a reader in another time zone has another one.
    """

    desc: RelationDesc
    definition: Relation | None = None
    defaults: tuple[Scalar, ...] = ()
    key: tuple[Scalar, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    generated: tuple[Generated | None, ...] = ()  # of a table: its identity columns
    sequence: Sequence | None = None
    depends_on_zone: bool = False

    @property
    def unique(self) -> list[Unique]:
        """The unique constraints of a table."""
        return [each for each in self.constraints if isinstance(each, Unique)]


class Catalog:
    """The owner of the catalog's state.

    `counters` allot the numbers of ids for all transactions, so they may be ahead of the state: by
    the numbers allotted to transactions that are running or were rolled back.
    """

    def __init__(self, state: State, planned: Mapping[GlobalId, Planned]) -> None:
        self.state = state
        self.planned = dict(planned)
        self.counters = dict(state.allotted)
        self.check()

    def transaction(self) -> Transaction:
        """Return an empty transaction on the current state."""
        return Transaction(self.state, self.counters)

    def commit(self, transaction: Transaction) -> None:
        """Publish the changes of `transaction` after its rows have become durable."""
        assert transaction.base is self.state, "two changes of the catalog at once"
        self.state = transaction.state
        known = {**self.planned, **transaction.planned}
        self.planned = {id: each for id, each in known.items() if id in self.state.objects}
        self.check()

    def check(self) -> None:
        """Assert that exactly the items are planned."""
        items = {item.id for item in self.state.items()}
        assert items == self.planned.keys(), items ^ self.planned.keys()
        self.state.check()
