"""The catalog: the present state, what planning made of each item, and how both change.

`State` is durable and knows names and definitions; `Planned` is what the adapter's planner made of
an item's definition, and is made anew at every start. Both change together, in `commit`, after the
new state's rows have become durable: a reader sees all of a DDL statement or nothing. Neither is
changed in place, so who holds both has the catalog as it was at one moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.constraint import Constraint
from foreshore.expr.ir import Relation, Scalar
from foreshore.ids import GlobalId
from foreshore.sequence import Generated, Sequence
from foreshore.types import RelationDesc


@dataclass(frozen=True, slots=True)
class Planned:
    """What an item's definition means.

    `definition` is the lowered relation of a view, a materialized view or a subscription over what
    it names, views put in; None for a table, which has `defaults` and `constraints`. `key` is an
    index's, over the columns of its relation.
    """

    desc: RelationDesc
    definition: Relation | None = None
    defaults: tuple[Scalar, ...] = ()
    key: tuple[Scalar, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    generated: tuple[Generated | None, ...] = ()  # of a table: what its identity columns generate
    sequence: Sequence | None = None


class Catalog:
    """The one owner of the catalog's state.

    `counters` give out the numbers of ids, across all transactions, and so may be ahead of what the
    state records: by those of transactions that are under way or came to nothing.
    """

    def __init__(self, state: State, planned: Mapping[GlobalId, Planned]) -> None:
        self.state = state
        self.planned = dict(planned)
        self.counters = dict(state.allotted)
        self.check()

    def transaction(self) -> Transaction:
        """Return an empty change of the present state."""
        return Transaction(self.state, self.counters)

    def commit(self, transaction: Transaction, planned: Mapping[GlobalId, Planned]) -> None:
        """Show what `transaction` made, after its rows have become durable."""
        assert transaction.base is self.state, "two changes of the catalog at once"
        self.state = transaction.state
        known = {**self.planned, **planned}
        self.planned = {id: each for id, each in known.items() if id in self.state.objects}
        self.check()

    def check(self) -> None:
        """Assert that each item is planned, and that nothing else is."""
        items = {item.id for item in self.state.items()}
        assert items == self.planned.keys(), items ^ self.planned.keys()
        self.state.check()
