"""Keys and ranges of keys that a plan reads, before arguments are bound."""

from dataclasses import dataclass
from typing import TypeAlias

from foreshore.expr.ir import Environment, Literal, Once, Parameter, Scalar
from foreshore.types import SqlType


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of `array`, a scalar without columns."""

    array: Scalar
    type: SqlType  # of an element


Constant: TypeAlias = Literal | Parameter | Environment | Once  # an integer may be out of range
Key: TypeAlias = tuple[Constant | Elements, ...]  # with Elements, a key for each combination


@dataclass(frozen=True, slots=True)
class End:
    """An end of a range: values of the first columns of the key.

    If one of the first `decisive` values is NULL, no row is in the range; of a later one, which is
    compared where those before it are equal, the rest decides. With `before_null` the end is before
    the rows in which the next column is NULL.
    """

    values: tuple[Constant, ...] = ()
    inclusive: bool = True
    before_null: bool = False
    decisive: int = 0


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows of an index from `low` to `high`, in ascending or descending order.

    Rows compare with an end by as many columns as it has values; without values it is open. With
    `is_ordered` the order is the query's own, so that LIMIT needs only the first rows.
    """

    low: End
    high: End
    descending: bool = False
    is_ordered: bool = False
