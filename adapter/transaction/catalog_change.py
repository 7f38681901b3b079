"""A change of the catalog that a transaction commits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from foreshore.catalog.transaction import Transaction
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.ids import GlobalId


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A change of the catalog, and the rows of its tables.

    `indexes` holds the key indexes of new and altered tables, by constraint name; `contents` the
    rows with which a table's new shard begins, at `Item.since`.
    """

    transaction: Transaction
    indexes: Mapping[GlobalId, Mapping[str, KeyIndex]] = field(default_factory=dict)
    contents: Mapping[GlobalId, pa.Table] = field(default_factory=dict)
