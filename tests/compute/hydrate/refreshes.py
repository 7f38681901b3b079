"""TPC-H's views through a random stream of refreshes, beside DuckDB computing them anew.

The tables are in files as the storage writes them. After hydration and after each refresh, what the
dataflow has put out so far is the view as of that time.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.columns import columns_of
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from tests.bench import cases
from tests.bench.cases import at
from tests.bench.flow import START, planned, stored, typed
from tests.compute.cases import rows_of
from tests.model import Rows, add
from tests.sql.catalog import TestCatalog

SCALE = 0.002
REFRESHES = 4


def check_refreshes(engine: FlowEngine, name: str, folder: Path, seed: int) -> None:
    """Assert that a view is right as of its hydration and after each of some random refreshes."""
    random, case = np.random.default_rng(seed), cases.case(name, SCALE)
    catalog = TestCatalog(*case.ddl)
    relation = planned(catalog, case.sql)
    tables = stored(typed(case, catalog), folder)
    inputs = {id: tables[id] for id in sources_of(relation)}
    description = DataflowDescription(GlobalId("t1"), relation, tuple(sorted(inputs)), (), START)
    anew = DuckDbEngine(directories=(str(folder),), threads=1)
    dataflow = engine.create(description, {id: each.schema for id, each in inputs.items()})
    columns, found, now = columns_of(relation), Counter[tuple[object, ...]](), START
    output = dataflow.hydrate(inputs)
    gone: set[tuple[object, ...]] = set()
    for _ in range(REFRESHES + 1):
        assert not output.errors.num_rows
        add(found, rows_of(output.rows, columns))
        wanted: Rows = rows_of(anew.evaluate(relation, inputs, now), columns)
        assert found == wanted, (name, now)
        now += 1
        deltas = {}
        for table, (old, new) in case.change(int(random.integers(1, 200)), random).items():
            id = catalog.resolve_item((table,)).id
            old, new = not_gone(old, new, gone)
            parts = [
                at(cases.cast(rows, catalog, table), now, diff)
                for rows, diff in ((old, -1), (new, 1))
            ]
            deltas[id] = pa.concat_tables(parts).combine_chunks()
            if id in inputs:
                before = inputs[id]
                inputs[id] = Input(before.schema, before.files, (*before.tail, deltas[id]))
        changed = {id: rows for id, rows in deltas.items() if id in inputs}
        output = dataflow.step(now, now + 1, changed)
    dataflow.close()
    anew.close()


def not_gone(
    old: pa.Table, new: pa.Table, gone: set[tuple[object, ...]]
) -> tuple[pa.Table, pa.Table]:
    """Return changes of rows without those of rows that are `gone`, and note what goes now.

    A case changes rows that it had at first, whatever it has changed before.
    """
    if new.num_rows != old.num_rows:
        return old, new
    rows = list(zip(*old.to_pydict().values(), strict=True))
    kept = [place for place, row in enumerate(rows) if row not in gone]
    gone.update(rows)
    return old.take(kept), new.take(kept)
