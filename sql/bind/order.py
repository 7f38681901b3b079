"""The order in which a relation's rows come, where its query gives them one.

SQL promises nothing of the rows of a subquery or of a set-returning function in FROM. PostgreSQL
keeps their order up to the result and into array_agg, and clients rely on that. A relation has no
order, so it is kept beside the relation, as sort keys over columns that the query may not show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.expr.ir import Column, OrderKey, Scalar
from foreshore.types import ColumnType


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Sort keys, each a column of the relation.

    If it is not `whole`, only rows are in order that come from one row of what stands to the left:
    the elements of each row's array in `FROM t, unnest(t.array)`. Then the keys before theirs are
    that row's columns.
    """

    keys: tuple[OrderKey, ...] = ()
    whole: bool = True

    def moved(self, by: int) -> "RowOrder":
        """Return the order where `by` other columns stand before the relation's own."""
        return RowOrder(tuple(_at(key, _index(key) + by) for key in self.keys), self.whole)

    def within(self, other: "RowOrder") -> "RowOrder":
        """Return the order of rows that come in this order for each row in the `other` one."""
        return RowOrder((*other.keys, *self.keys), self.whole and other.whole)

    def within_rows(self, order: "RowOrder", columns: Sequence[ColumnType]) -> "RowOrder":
        """Return the order of rows that come in this order for each of rows in `order`.

        Those have the `columns`, which tell them apart where `order` says nothing.
        """
        if not self.keys:
            return order
        return self.within(order if order.keys else row_by_row(columns))

    def placed(self, outputs: Sequence[int]) -> tuple[tuple[int, ...], "RowOrder"]:
        """Return the columns `outputs` with those of the order behind them, and it over these."""
        columns = list(outputs)
        for key in self.keys:
            if _index(key) not in columns:
                columns.append(_index(key))
        keys = tuple(_at(key, columns.index(_index(key))) for key in self.keys)
        return tuple(columns), RowOrder(keys, self.whole)


UNORDERED = RowOrder()


def ascending(column: Column) -> RowOrder:
    """Return the order by `column`, which numbers the rows."""
    return RowOrder((OrderKey(column),))


def row_by_row(columns: Sequence[ColumnType]) -> RowOrder:
    """Return an order that keeps what comes from one row together, of rows that have no order."""
    keys = (OrderKey(Column(i, c.type, c.nullable)) for i, c in enumerate(columns))
    return RowOrder(tuple(keys), whole=not columns)


def _index(key: OrderKey) -> int:
    assert isinstance(key.expr, Column), key
    return key.expr.index


def _at(key: OrderKey, index: int) -> OrderKey:
    expr: Scalar = key.expr
    assert isinstance(expr, Column), key
    return OrderKey(Column(index, expr.type, expr.nullable), key.descending, key.nulls_first)
