"""Hydration of little: DuckDB computes what a dataflow on Spark begins with."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from foreshore.compute.bulk.spark_local import RESULT_BYTES, LocalSteps
from foreshore.compute.bulk.spark_store import SparkStore
from foreshore.compute.delta.tables import Layout, cast_to_schema
from foreshore.compute.engine import Input
from foreshore.expr.ir import Constant
from foreshore.ids import GlobalId
from foreshore.types import ColumnType


class LocalHydration:
    """The store of a hydration that DuckDB computes: it writes to the contents of a Spark store."""

    def __init__(self, store: SparkStore, local: LocalSteps) -> None:
        self.dialect = local.session.dialect
        self.idioms = local.session.idioms
        self._store = store
        self._local = local

    def sources(
        self,
        inputs: Mapping[GlobalId, Input],
        columns: Mapping[GlobalId, Sequence[ColumnType]],
        as_of: int,
    ) -> Mapping[GlobalId, str]:
        """Return a FROM item for each input as of a time."""
        return self._local.session.sources(inputs, columns, as_of)

    def constant(self, constant: Constant) -> str:
        """Return a FROM item for a constant."""
        return self._local.session.constant(constant)

    def hold(self, name: str, layout: Layout, select: str) -> None:
        """Create the contents `name`, of Spark's layout, from `select`."""
        self._store.hold_here(name, layout, self._store.fetch_here(select, RESULT_BYTES))

    def read(self, select: str, schema: pa.Schema) -> pa.Table:
        """Return the result of `select` as a table of `schema`."""
        return cast_to_schema(self._store.fetch_here(select, RESULT_BYTES), schema)

    def release(self) -> None:
        """Drop inputs and constants."""
        self._local.release()

    def forget(self, name: str) -> None:
        """Drop the contents `name`."""
        self._store.forget(name)
