"""Runs a peer over a stream: each is a program of its own, with the rows as CSV files.

In the folder that a peer is given are TABLE/fixed.csv, what a table holds at the start, and
TABLE/NUMBER.csv, what each batch appends; all have a header. What it prints last is JSON: the
seconds that pass (`wall`) and of processors (`cpu`) for all batches, the median of one (`batch`) if
it answers after each, and its `answer`, rows of the view, which must be DuckDB's.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from tests.bench.streams import TPCH_INPUTS, Stream, check

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def write(stream: Stream, folder: Path) -> None:
    """Write all rows as files."""
    for name in stream.schema:
        (folder / name).mkdir()
    for name, rows in stream.fixed.items():
        _write(rows, folder / name / "fixed.csv")
    for number, batch in enumerate(stream.batches):
        for name, rows in batch.items():
            _write(rows, folder / name / f"{number:06}.csv")


def _write(rows: pa.Table, path: Path) -> None:
    rows = rows.rename_columns(["number" if n == "id" else n for n in rows.column_names])
    pyarrow.csv.write_csv(rows, path, pyarrow.csv.WriteOptions(quoting_style="none"))


def _run(name: str, command: list[str], stream: Stream, ours: float) -> None:
    """Print the figures of a peer, and how many times its rows for each second of CPU ours are."""
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        write(stream, Path(folder))
        done = subprocess.run(
            [*command, stream.view, folder, str(stream.rows)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
    if done.returncode:
        print(f"{stream.view:4} | {name:15} | {(done.stderr or done.stdout)[-1500:]}", flush=True)
        return
    found = json.loads(done.stdout.splitlines()[-1])
    check(found["answer"], stream.answer())
    by_cpu = stream.rows / found["cpu"]
    batch = f"{found['batch'] * 1e3:8.1f}" if "batch" in found else ""
    print(
        f"{stream.view:4} | {name:15} | {stream.rows / found['wall']:10,.0f} | {by_cpu:10,.0f}"
        f" | {ours / by_cpu:5.1f} | {'':8} {batch}",
        flush=True,
    )


def pathway(python: str, stream: Stream, ours: float) -> None:
    """Run Pathway, which reads files as a stream and commits every 100 ms; it keeps nothing on disk."""
    program = "tpch_pathway" if stream.view in TPCH_INPUTS else "nexmark_pathway"
    _run("Pathway", [python, "-m", f"tests.bench.peers.{program}"], stream, ours)


def trickle(python: str, stream: Stream, ours: float) -> None:
    """Run Trickle in a DuckDB file."""
    _run("Trickle", [python, "-m", "tests.bench.peers.tpch_trickle"], stream, ours)


def pglite(folder: str, stream: Stream, ours: float, *, inserting: bool) -> None:
    """Run pg_ivm in PGlite, PostgreSQL in one process of Node; its data is in memory."""
    way = "INSERT" if inserting else "COPY"
    schema = json.dumps(stream.schema)
    command = ["node", str(HERE / "tpch_pg_ivm.mjs"), str(Path(folder).resolve()), way, schema]
    _run(f"pg_ivm, {way}", command, stream, ours)
