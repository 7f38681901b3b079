"""The order of a relation's rows, where its query defines one.

SQL guarantees no order for the rows of a subquery or set-returning function in FROM. PostgreSQL
keeps it up to the result and into array_agg, and clients rely on that. Relations have no order, so
it is kept separately, as sort keys over columns that the query need not show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.expr.ir import Column, OrderKey, Scalar
from foreshore.types import ColumnType


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Sort keys, each a column of the relation.

    If not `whole`, only rows that come from one row of the left side are ordered: the elements of
    each row's array in `FROM t, unnest(t.array)`. The preceding keys are then that row's columns.
    """

    keys: tuple[OrderKey, ...] = ()
    whole: bool = True

    def moved(self, by: int) -> "RowOrder":
        """Return the order after `by` columns were put before the relation's own."""
        return RowOrder(tuple(_at(key, _index(key) + by) for key in self.keys), self.whole)

    def within(self, other: "RowOrder") -> "RowOrder":
        """Return this order applied within each row of the `other` order."""
        return RowOrder((*other.keys, *self.keys), self.whole and other.whole)

    def within_rows(self, order: "RowOrder", columns: Sequence[ColumnType]) -> "RowOrder":
        """Return this order applied within each of the rows ordered by `order`.

        `columns` distinguish those rows where `order` does not.
        """
        if not self.keys:
            return order
        return self.within(order if order.keys else row_by_row(columns))

    def placed(self, outputs: Sequence[int]) -> tuple[tuple[int, ...], "RowOrder"]:
        """Return the columns `outputs` followed by those of the order, and the order over them."""
        columns = list(outputs)
        for key in self.keys:
            if _index(key) not in columns:
                columns.append(_index(key))
        keys = tuple(_at(key, columns.index(_index(key))) for key in self.keys)
        return tuple(columns), RowOrder(keys, self.whole)


UNORDERED = RowOrder()


def ascending(column: Column) -> RowOrder:
    """Return the ascending order by `column`, which numbers the rows."""
    return RowOrder((OrderKey(column),))


def row_by_row(columns: Sequence[ColumnType]) -> RowOrder:
    """Return an order that groups the rows derived from one row of an unordered relation."""
    keys = (OrderKey(Column(i, c.type, c.nullable)) for i, c in enumerate(columns))
    return RowOrder(tuple(keys), whole=not columns)


def _index(key: OrderKey) -> int:
    assert isinstance(key.expr, Column), key
    return key.expr.index


def _at(key: OrderKey, index: int) -> OrderKey:
    expr: Scalar = key.expr
    assert isinstance(expr, Column), key
    return OrderKey(Column(index, expr.type, expr.nullable), key.descending, key.nulls_first)
