"""One process beside two workers, without a server: `python -m tests.bench.workers [scale] [views]`.

For each view: the CPU, of all processes, and the wall time to hydrate it and of a step in which
100,000 rows of `lineitem` are replaced, by the operators of one process and by those of workers.
Both are taken in turns. A machine that is busy shows no gain of wall time; CPU shows the price.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Dataflow, Engine, Input
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.warm import warm
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.workers.engine import WorkersEngine
from foreshore.compute.workers.pool import Pool
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import arrow_type
from foreshore.update import update_schema
from tests.bench.cases import at
from tests.bench.flow import START, planned
from tests.bench.tpch import MORE_VIEWS, SCHEMA, VIEWS, tables
from tests.sql.catalog import TestCatalog

CHANGED = 100_000
STEPS = 3
WORKERS = 2
TICKS = os.sysconf("SC_CLK_TCK")

Cost = tuple[float, float]


class Measured:
    """An engine and the processes that do its work."""

    def __init__(self, name: str, engine: Engine, pids: list[int]) -> None:
        self.name = name
        self.engine = engine
        self._pids = pids

    def cost(self, work: Callable[[], object]) -> Cost:
        """Return the seconds of CPU, of all processes, and of wall time that `work` takes."""
        cpu, wall = self._cpu(), time.perf_counter()
        work()
        return self._cpu() - cpu, time.perf_counter() - wall

    def _cpu(self) -> float:
        spent = time.process_time()
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            spent += (int(fields[11]) + int(fields[12])) / TICKS
        return spent


def main() -> None:
    """Print the figures of each view."""
    warm()
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    catalog = TestCatalog(*SCHEMA.values())
    inputs: dict[GlobalId, Input] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, rows in tables(scale).items():
            item = catalog.resolve_item((name,))
            arrays = [
                column.cast(arrow_type(each.type))
                for column, each in zip(rows.columns, item.desc.columns, strict=True)
            ]
            typed = pa.table(arrays, names=list(item.desc.names))
            input = Input(typed.schema)
            path = Path(directory) / f"{name}.parquet"
            stored = at(typed, START, 1).rename_columns(
                [*input.file_names, *update_schema(typed.schema).names[-2:]]
            )
            pq.write_table(stored, path)
            inputs[item.id] = Input(typed.schema, (str(path),))
            if name == "lineitem":
                lines, lines_id = typed, item.id
        pool = Pool(WORKERS)
        pids = [each.pid for each in pool.processes]
        engines = [
            Measured("one process", FlowEngine(DuckDbEngine(directories=[directory])), []),
            Measured(
                f"{WORKERS} workers",
                WorkersEngine(DuckDbEngine(directories=[directory]), pool),
                pids,
            ),
        ]
        try:
            for view in sys.argv[2:] or VIEWS:
                relation = planned(catalog, {**VIEWS, **MORE_VIEWS}[view])
                run_view(view, relation, inputs, engines, lines, lines_id)
        finally:
            for each in engines:
                each.engine.close()


def run_view(
    view: str,
    relation: Relation,
    inputs: Mapping[GlobalId, Input],
    engines: Sequence[Measured],
    lines: pa.Table,
    lines_id: GlobalId,
) -> None:
    """Print the figures of one view."""
    sources = tuple(sorted(sources_of(relation)))
    read = {id: inputs[id] for id in sources}
    dataflows: list[Dataflow] = []
    for each in engines:
        description = DataflowDescription(GlobalId("t1"), relation, sources, (), START)
        dataflow = each.engine.create(description, {id: read[id].schema for id in sources})
        dataflows.append(dataflow)
        show(view, each, "hydration", each.cost(partial(dataflow.hydrate, read)))
    random = np.random.default_rng(1)
    now = START + 1
    spent: list[list[Cost]] = [[] for _ in engines]
    changed = min(CHANGED, lines.num_rows // 4)
    for _ in range(STEPS):
        picked = lines.take(pa.array(random.integers(0, lines.num_rows, changed)))
        quantity = pa.array(random.integers(1, 51, changed)).cast(pa.decimal128(38, 2))
        place = picked.schema.get_field_index("l_quantity")
        new = picked.set_column(place, picked.schema.field(place), quantity)
        for a, b in ((picked, new), (new, picked)):
            delta = pa.concat_tables([at(a, now, -1), at(b, now, 1)]).combine_chunks()
            for each, dataflow, costs in zip(engines, dataflows, spent, strict=True):
                step = partial(dataflow.step, now, now + 1, {lines_id: delta})
                costs.append(each.cost(step))
            now += 1
    for each, dataflow, costs in zip(engines, dataflows, spent, strict=True):
        cpu, wall = (statistics.median(found) for found in zip(*costs, strict=True))
        show(view, each, f"{changed} rows", (cpu, wall))
        dataflow.close()


def show(view: str, engine: Measured, what: str, spent: Cost) -> None:
    """Print a figure."""
    print(
        f"{view:8} {what:12} {engine.name:12} {spent[0]:7.3f} s CPU {spent[1]:7.3f} wall",
        flush=True,
    )


if __name__ == "__main__":
    main()
