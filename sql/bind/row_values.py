"""Rows as values: ROW(...), (a, b) and whole rows of tables.

A row is not a scalar. It is used only where it is taken apart: in comparisons, IS NULL, IN and
count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foreshore.errors import FeatureNotSupported, SyntaxError_
from foreshore.expr.ir import FALSE, TRUE, And, Or, Scalar
from foreshore.sql.bind.scope import Scope, Table, reference

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

_ORDERING = ("<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class RowValue:
    """A row, which is not a scalar and is used only where it is taken apart.

    It was built by ROW or, if `whole`, is the row of a table. The two compare by different rules.
    """

    items: tuple[Scalar, ...]
    offsets: tuple[int, ...]
    at: int
    whole: bool = False
    outer: bool = False  # of a table on the nullable side of a join, so the row itself may be NULL
    # if `outer`: a column that is NULL exactly if the row is, if there is one
    present: Scalar | None = None
    names: tuple[str, ...] = ()  # of the columns; none of a row built by ROW
    relation: str | None = None  # of the catalog, whose row it is

    def refused(self) -> FeatureNotSupported:
        """Return the error for a row where a scalar is required."""
        what = "a whole row" if self.whole else "a row"
        return FeatureNotSupported(f"{what} as a value is not supported", position=self.at + 1)


def are_built(left: Scalar | RowValue, right: Scalar | RowValue) -> bool:
    """Return whether both are rows built by ROW, which compare column by column."""
    return all(isinstance(each, RowValue) and not each.whole for each in (left, right))


def row_of_table(table: Table, level: int, owner: Scope, at: int) -> Scalar | RowValue:
    """Return the whole row of a table, or the scalar of a function that returns scalars."""
    shown = f"{table.alias}.*"
    items = tuple(reference(owner, level, slot.index, shown, at) for slot in table.slots)
    if table.scalar:
        return items[0]
    present = None if table.present is None else reference(owner, level, table.present, shown, at)
    names = tuple(slot.name for slot in table.slots)
    relation = None if table.oid is None else table.hidden_name or table.alias
    return RowValue(items, (at,) * len(items), at, True, table.outer, present, names, relation)


def compare_rows(
    binder: "Binder",
    operator: str,
    left: Scalar | RowValue,
    right: Scalar | RowValue,
    at: int,
) -> Scalar:
    """Return `left operator right`, of which at least one is a row."""
    left, right = _both_rows(left, right, at)
    if not left.items:
        raise FeatureNotSupported("cannot compare rows of zero length", position=at + 1)

    def each(name: str, i: int) -> Scalar:
        return binder.call(
            name, (left.items[i], right.items[i]), at, (left.offsets[i], right.offsets[i])
        )

    count = len(left.items)
    if operator == "=":
        return conjunction([each("=", i) for i in range(count)])
    if operator == "<>":
        return disjunction([each("<>", i) for i in range(count)])
    if operator not in _ORDERING:
        raise FeatureNotSupported(
            f"could not determine interpretation of row comparison operator {operator}",
            position=at + 1,
        )
    # a < b, or a = b and the remaining fields compare so
    result = each(operator, count - 1)
    for i in range(count - 2, -1, -1):
        result = Or((each(operator[0], i), And((each("=", i), result))))
    return result


def distinct_rows(
    binder: "Binder",
    name: str,
    left: Scalar | RowValue,
    right: Scalar | RowValue,
    at: int,
) -> Scalar:
    """Return IS [NOT] DISTINCT FROM of rows, for the operator `name`."""
    left, right = _both_rows(left, right, at)
    parts = [binder.call(name, pair, at) for pair in zip(left.items, right.items, strict=True)]
    return conjunction(parts) if name == "is not distinct from" else disjunction(parts)


def _both_rows(
    left: Scalar | RowValue, right: Scalar | RowValue, at: int
) -> tuple[RowValue, RowValue]:
    """Return the two rows, which must have one length and be built by ROW."""
    for value in (left, right):
        assert not (isinstance(value, RowValue) and value.whole), value
    if not (isinstance(left, RowValue) and isinstance(right, RowValue)):
        raise FeatureNotSupported(
            "comparing a row with a value that is not a row constructor is not supported",
            position=at + 1,
        )
    if len(left.items) != len(right.items):
        raise SyntaxError_("unequal number of entries in row expressions", position=at + 1)
    return left, right


def conjunction(scalars: Sequence[Scalar]) -> Scalar:
    """Return the AND of `scalars`."""
    return TRUE if not scalars else scalars[0] if len(scalars) == 1 else And(tuple(scalars))


def disjunction(scalars: Sequence[Scalar]) -> Scalar:
    """Return the OR of `scalars`."""
    return FALSE if not scalars else scalars[0] if len(scalars) == 1 else Or(tuple(scalars))
