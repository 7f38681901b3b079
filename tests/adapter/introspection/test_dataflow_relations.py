"""The relations of mz_introspection show what dataflows do and have done."""

from collections.abc import Iterator

import pytest

from foreshore.compute.replica import reports
from tests.adapter.harness import TestEnvironment
from tests.adapter.introspection.test_arrangement_sizes import becomes


@pytest.fixture(scope="module", autouse=True)
def reported_often() -> Iterator[None]:
    """Let replicas report periodically after fifty milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "STATUS_SECONDS", 0.05)
        yield


async def test_operators_of_index_have_names_rows_and_times(env: TestEnvironment) -> None:
    await env.ran(
        "s",
        "CREATE TABLE sold (shop text, amount int)",
        "INSERT INTO sold VALUES ('a', 1), ('a', 2), ('b', 3)",
        "CREATE VIEW totals AS SELECT shop, sum(amount) FROM sold GROUP BY shop",
        "CREATE INDEX totals_by_shop ON totals (shop)",
    )
    await becomes(
        env,
        "SELECT p.name, p.parent_id, p.input_ids, e.steps, e.rows_in, e.rows_out, e.elapsed_ns > 0"
        " FROM mz_introspection.mz_dataflow_operators p"
        " JOIN mz_introspection.mz_scheduling_elapsed e USING (replica_id, object_id, operator_id)"
        " JOIN mz_objects o ON o.id = p.object_id WHERE o.name = 'totals_by_shop'"
        " ORDER BY operator_id",
        "Get|1|{}|1|0|3|t\nReduce|2|{0}|1|3|2|t\nLinear|NULL|{1}|1|2|2|t\nSELECT 3",
    )
    await env.ran("s", "INSERT INTO sold VALUES ('b', 4)")
    await becomes(
        env,
        "SELECT operator_id, steps, rows_in, rows_out, elapsed_ns > hydration_ns"
        " FROM mz_introspection.mz_scheduling_elapsed JOIN mz_objects o ON o.id = object_id"
        " WHERE o.name = 'totals_by_shop' ORDER BY operator_id NULLS LAST",
        "0|2|0|4|t\n1|2|4|4|t\n2|2|4|4|t\nNULL|1|NULL|NULL|t\nSELECT 4",
    )


async def test_records_hydration_and_frontiers_are_there_for_each_dataflow(
    env: TestEnvironment,
) -> None:
    await becomes(
        env,
        "SELECT r.name, r.records >= 4, r.size > 0, h.time_ns IS NOT NULL, s.hydrated,"
        " f.time > 0, c.hydration_time >= interval '0'"
        " FROM mz_introspection.mz_records_per_dataflow r"
        " JOIN mz_introspection.mz_compute_hydration_times h ON h.export_id = r.object_id"
        " JOIN mz_introspection.mz_compute_frontiers f ON f.export_id = r.object_id"
        " JOIN mz_internal.mz_compute_hydration_statuses c USING (object_id)"
        " JOIN mz_internal.mz_hydration_statuses s USING (object_id)",
        "totals_by_shop|t|t|t|t|t|t\nSELECT 1",
    )
