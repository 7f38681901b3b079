"""Envelopes: the form in which a subscription shows the changes of a query.

`Finishing` says the same of the rows of a query that is read once.
"""

from dataclasses import dataclass
from typing import TypeAlias

from foreshore.expr.ir import OrderKey


@dataclass(frozen=True, slots=True)
class Diffs:
    """One row per change, with its `mz_diff`.

    `order_by` orders the changes of one time; its columns are `mz_diff`, then the query's.
    """

    order_by: tuple[OrderKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Upsert:
    """One row per key that changed at a time, with its current values.

    `key` are columns of the query.
    """

    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Debezium:
    """Like Upsert, with the previous values as well."""

    key: tuple[int, ...]


Envelope: TypeAlias = Diffs | Upsert | Debezium
