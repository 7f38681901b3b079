"""A query of TPC-H as a maintained view, beside DuckDB that computes it anew after each refresh."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.engine import Engine
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.update import DIFF, TIME
from tests.bench.cases import at, cast
from tests.bench.flow import START, planned, stored
from tests.bench.streams import check
from tests.compute.tpch.data import Database
from tests.compute.tpch.queries import PEERS, QUERIES, SCHEMA
from tests.sql.catalog import TestCatalog

ID = GlobalId("t1")
SCALE = 0.001
STEPS = (1, 1, 3, 1)  # the refreshes of each, which have a time each

Row = tuple[Any, ...]


def check_view(engine: Engine, name: str, folder: Path, seed: int) -> int:
    """Assert that a view is right at its hydration and after each of some random refreshes.

    Returns how many rows it had at most.
    """
    catalog, database = TestCatalog(*SCHEMA.values()), Database(SCALE, seed)
    relation = planned(catalog, QUERIES[name])
    ids = {table: catalog.resolve_item((table,)).id for table in SCHEMA}
    sources = tuple(sorted(sources_of(relation)))
    tables = {ids[t]: cast(rows, catalog, t) for t, rows in database.tables().items()}
    inputs = stored({id: tables[id] for id in sources}, folder)
    schemas = {id: each.schema for id, each in inputs.items()}
    dataflow = engine.create(DataflowDescription(ID, relation, sources, (), START), schemas)
    view = MaintainedRows()
    try:
        view.add(dataflow.hydrate(inputs).rows)
        view.check([database.answer(PEERS[name])], START)
        now = START + 1
        for count in STEPS:
            deltas: dict[GlobalId, list[pa.Table]] = {id: [] for id in sources}
            wanted = []
            for time in range(now, now + count):
                for table, (old, new) in database.refreshed().items():
                    if ids[table] in deltas:
                        deltas[ids[table]] += (
                            at(cast(rows, catalog, table), time, diff)
                            for rows, diff in ((old, -1), (new, 1))
                        )
                wanted.append(database.answer(PEERS[name]))
            given = {id: pa.concat_tables(p).combine_chunks() for id, p in deltas.items() if p}
            output = dataflow.step(now, now + count, given)
            assert not output.errors.num_rows
            view.add(output.rows)
            view.check(wanted, now)
            now += count
    finally:
        dataflow.close()
        database.close()
    return view.most


class MaintainedRows:
    """The rows of a view, from the updates that a dataflow puts out."""

    def __init__(self) -> None:
        self.most = 0
        self._rows: Counter[Row] = Counter()
        self._coming: pa.Table | None = None

    def add(self, updates: pa.Table) -> None:
        """Take updates that count from their times on."""
        self._coming = updates

    def check(self, wanted: Sequence[Sequence[Row]], first: int) -> None:
        """Assert what the rows are at some times, one after the other."""
        assert self._coming is not None
        for time, rows in enumerate(wanted, first):
            here = self._coming.filter(pc.equal(self._coming[TIME], time))
            values = [c.to_pylist() for c in here.drop_columns([TIME, DIFF]).columns]
            for *row, diff in zip(*values, here[DIFF].to_pylist(), strict=True):
                self._rows[tuple(row)] += diff
            assert min(self._rows.values(), default=0) >= 0, time
            check([*self._rows.elements()], rows)
            self.most = max(self.most, len(rows))
        times = self._coming[TIME].to_pylist()
        assert all(first <= time < first + len(wanted) for time in times)
