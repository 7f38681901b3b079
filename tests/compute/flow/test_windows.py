"""Windows maintained by the arrangement engine have the model's rows at every time."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from tests.compute.cases import Case, Contents, check_maintained
from tests.effort import examples
from tests.relations import histories, window_relations


class WithoutBulk(FlowEngine):
    """The engine, which leaves no dataflow to the bulk engine."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> FlowDataflow:
        """Return a dataflow; raises Unsupported."""
        return FlowDataflow(description, self._bulk, self._collections)


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    """Yield one engine for all cases."""
    bulk = DuckDbEngine(threads=1)
    yield WithoutBulk(bulk)
    bulk.close()


@settings(max_examples=examples(300))
@given(window_relations(failing=True), histories(5), st.sets(st.integers(2, 4)))
def test_windows_are_exact_at_every_time(
    engine: FlowEngine, relation: Relation, history: list[Contents], cuts: set[int]
) -> None:
    try:
        check_maintained(engine, Case(relation, history, frozenset(cuts)))
    except Unsupported:
        reject()
