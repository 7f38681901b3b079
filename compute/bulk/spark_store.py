"""The store of a dataflow on Spark: contents in Parquet files, and a job for each statement.

The contents of a trace are Parquet files in the dataflow's scratch directory, written by a job at
hydration, and a tail of Arrow tables on the driver, added by ticks. A large tail is written to a
file. When ticks have added much, a job consolidates all of it, between two steps. Large contents
are in buckets by the hash of a key, and a statement reads those that its changes touch.

Tasks may run twice: a job writes to a directory of its own, Spark moves there the files of one
attempt of each task, and only what this process lists there when the job has succeeded counts.
Files never change, and a checkpoint takes them as they are.
"""

import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.bulk.spark_contents import (
    BUCKET,
    Clustering,
    Contents,
    StateFile,
    written_files,
)
from foreshore.compute.bulk.spark_local import LocalSteps
from foreshore.compute.bulk.spark_sql import SMALL_BYTES, SparkSqlSession, Tuning, faults
from foreshore.compute.bulk.spark_types import arrow_schema
from foreshore.compute.bulk.step_log import StepLog
from foreshore.compute.checkpoint.kept_file import KeptFile
from foreshore.compute.checkpoint.state import Mismatch, Reader, Writer
from foreshore.compute.delta.closed import Closed
from foreshore.compute.delta.tables import Layout, by_position, consolidate_select
from foreshore.compute.delta.touched import Touch
from foreshore.compute.engine import ArrangementSize, Cancellation
from foreshore.compute.spark.buckets import buckets_of
from foreshore.errors import QueryCanceled

logger = logging.getLogger(__name__)

# A tail of more entries than this is written to a file.
TAIL_ENTRIES = 20_000
# Files added by ticks are merged when there are this many.
TAIL_FILES = 8
# All is consolidated when ticks have added this share of the entries, and more than TAIL_ENTRIES.
ADDED_SHARE = 0.25
# So many steps are made after a consolidation that failed, before it is tried again.
REST_STEPS = 10
# So many changed rows for each bucket touch all buckets, as good as surely.
ROWS_FOR_ALL = 16

# A tail is kept in fewer pieces than this.
MOST_CHUNKS = 100
# Rows in memory take so many times the space of their files.
IN_MEMORY = 4

_NONE = pa.table({})
_NAMES = re.compile(r"\b(?:[sd]\d+|u_\w+)\b")
AllOrSome = Mapping[str, tuple[Touch, ...] | None]
# Returns the context of jobs in a session.
Group = Callable[[Any, Cancellation], AbstractContextManager[None]]


class SparkStore(SparkSqlSession):
    """The tables of one dataflow, as views of a separate session."""

    def __init__(
        self,
        open: Callable[[], Any],
        scratch: Path,
        partitions: int | None = None,
        group: Group | None = None,
    ) -> None:
        """Make a store; its jobs belong to `group`, which `cancellation` stops."""
        super().__init__(open, partitions)
        self.local: LocalSteps | None = None  # once the contents are there
        self.cancellation = Cancellation()
        self.log = StepLog()
        self._group = group
        self._scratch = scratch
        self._contents: dict[str, Contents] = {}
        self._layouts: dict[str, Layout] = {}
        self._changes: dict[str, pa.Table] = {}  # as Spark has them
        self._updates: dict[str, pa.Table] = {}  # those that were loaded
        self._saved: dict[str, list[pa.Table]] = {}  # tails at the beginning of the step
        self._in_spark: dict[str, pa.Table] = {}  # changes, as far as Spark shows them
        self._touched: AllOrSome = {}
        self._is_local = False  # the next statement
        self._is_anew = False  # and whether it computes all anew
        self._read = 0  # bytes of the files that it reads
        self._closed: dict[str, Closed] = {}  # rows of contents that are not read again
        self._generations = count()
        self._resting = 0  # steps until consolidation is tried again
        self.files_read = 0  # by statements since the last `begin`, of so many:
        self.files_there = 0
        self.jobs = 0  # and statements that were jobs of Spark
        scratch.mkdir(parents=True)

    def batch_sizing(self) -> BatchSizing:
        """Return the batch sizing of a dataflow."""
        return BatchSizing(128, seconds=4.0)

    def hold(
        self, name: str, layout: Layout, select: str, clustering: Clustering | None = None
    ) -> None:
        """Create the contents `name` from `select`, written by a job."""
        contents = Contents(layout, clustering)
        contents.files = self._write(select, clustering)
        self._contents[name] = contents

    def hold_here(self, name: str, layout: Layout, rows: pa.Table) -> None:
        """Create the contents `name` from its rows, which are few."""
        contents = Contents(layout)
        if rows.num_rows:
            contents.tail = [rows.cast(arrow_schema(tuple(contents.columns)))]
        if contents.tail_rows > TAIL_ENTRIES:
            self._write_tail(contents)
            contents.files, contents.added = contents.added, []
        self._contents[name] = contents

    def forget(self, name: str) -> None:
        """Drop the contents `name`."""
        del self._contents[name]

    def prepare(self, name: str, layout: Layout) -> None:
        """Record the layout of the changes `name`."""
        self._layouts[name] = layout

    def begin(self) -> None:
        """Begin a step."""
        self.files_read = self.files_there = self.jobs = 0
        self.log.begin()

    def load(self, name: str, updates: pa.Table) -> None:
        """Set the changes `name` to `updates`."""
        self._updates[name] = updates
        self._show_changes(name, by_position(updates))

    def updates(self, name: str) -> pa.Table | None:
        """Return the changes `name` in the types of Arrow, None if a statement has computed them.

        They have no rows if nothing has changed.
        """
        if name in self._changes:
            return self._updates.get(name)
        return _NONE

    def fill(self, name: str, select: str) -> bool:
        """Set the changes `name` to the result of `select`."""
        table = self.fetch(select)
        if table.num_rows:
            self._show_changes(name, table)
        return bool(table.num_rows)

    def rows(self, name: str) -> int:
        """Return the number of entries of the contents `name`."""
        return self._contents[name].rows

    def changes(self, name: str) -> int:
        """Return the number of the changes `name`."""
        return self._changes[name].num_rows if name in self._changes else 0

    def narrow(self, touched: AllOrSome, *, anew: bool = False) -> bool:
        """Let the next statement read some contents, only buckets touched by changes if it says.

        Return whether that is so little that the statement is to be one of `local`.
        """
        self._touched = touched
        self._is_anew = anew
        self._read = 0
        for name, touches in touched.items():
            contents = self._contents[name]
            self._read += contents.bytes(self._buckets(contents, touches))
        self._is_local = self.local is not None and self.local.takes(self._read)
        return self._is_local

    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return the result of `select` over the current tables."""
        began, files, there = time.monotonic(), self.files_read, self.files_there
        engine = "duckdb" if self._is_local else "spark"
        if self._is_local:
            self._is_local = False
            rows = self.fetch_here(select)
        else:
            self.tune(Tuning())
            self._show_used(select)
            self.jobs += 1
            with self._jobs():
                rows = super().fetch(select, max_bytes)
        work = self.log.of(engine)
        work.anew += self._is_anew
        work.add(
            self._read,
            self.files_read - files,
            self.files_there - there,
            rows.num_rows,
            time.monotonic() - began,
            None if self.local is None else self.local.why(self._read),
        )
        return rows

    def fetch_here(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return the result of a statement of `local` over the current tables."""
        assert self.local is not None
        touched, self._touched = self._touched, {}
        contents = {}
        for name in _named(select, "s"):
            found = self._contents[name]
            paths = found.paths(self._buckets(found, touched.get(name)))
            self.files_read += len(paths)
            self.files_there += len(found.files) + len(found.added)
            contents[name] = (paths, self._tail(found))
        names = _named(select, "d", "u_") & self._changes.keys()
        changes = {name: self._changes[name] for name in names}
        return self.local.fetch(select, contents, changes, max_bytes)

    def absorb(self, contents: str, changes: str) -> None:
        """Add changes to contents; the end of the step makes this permanent."""
        into = self._contents[contents]
        self._saved.setdefault(contents, list(into.tail))
        into.tail.append(self._changes[changes].select(into.layout.names))
        into.shown = None

    def let_go(self, contents: str, closed: Closed) -> None:
        """Drop the closed rows of contents when these are consolidated."""
        self._closed[contents] = closed

    def clear(self, changed: Sequence[str]) -> None:
        """Forget changes."""
        for name in changed:
            del self._changes[name]
            self._updates.pop(name, None)
            self._in_spark.pop(name, None)

    def commit(self) -> None:
        """End the step, and write large tails to files."""
        self.log.end()
        absorbed, self._saved = self._saved, {}
        self._resting = max(self._resting - 1, 0)
        for name in absorbed:
            contents = self._contents[name]
            try:
                if contents.tail_rows > TAIL_ENTRIES:
                    self._write_tail(contents)
            except Exception:
                # The step is done in any case: repeating it would add its changes twice. The tail
                # is written after the next step.
                logger.exception("a tail could not be written", extra={"contents": name})

    def rollback(self) -> None:
        """Undo the step."""
        for name, tail in self._saved.items():
            self._contents[name].tail = tail
            self._contents[name].shown = None
        self._saved.clear()
        self._changes.clear()
        self._updates.clear()
        self._in_spark.clear()

    def close(self) -> None:
        """Drop the views and the files."""
        super().close()
        if self.local is not None:
            self.local.close()
        self._contents.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def tune_for(self, bytes: int) -> None:
        """Prepare for jobs whose inputs have so many bytes."""
        self.tune(self._bulk if bytes > SMALL_BYTES else Tuning(interpreted=True))

    # --- maintenance between steps

    @property
    def maintenance_due(self) -> bool:
        """Whether ticks have added so much to some contents that it is to be consolidated."""
        return self._worst() is not None

    def maintain(self) -> bool:
        """Consolidate some contents with a job; return whether there are more."""
        name = self._worst()
        if name is not None:
            try:
                self.lasting(partial(self._consolidate, name))
            except QueryCanceled:  # the dataflow ends
                raise
            except Exception:  # what is there stays as it is, however that has failed
                logger.exception("contents could not be consolidated", extra={"contents": name})
                self._resting = REST_STEPS
        return self.maintenance_due

    def _consolidate(self, name: str) -> None:
        contents = self._contents[name]
        paths = contents.paths(None)
        if (
            contents.clustering is None
            and self.local is not None
            and self.local.takes(IN_MEMORY * contents.bytes(None))
        ):
            rows = self.local.consolidated(
                name, paths, self._tail(contents), self._closed.get(name)
            )
            contents.files = [self._write_here(rows, contents)]
        else:
            self.tune(self._bulk)
            self._touched = {}
            closed = self._closed.get(name)
            select = consolidate_select(name, contents.layout, self.dialect, closed)
            contents.files = self._write(select, contents.clustering)
        contents.added, contents.tail, contents.shown = [], [], None

    def _worst(self) -> str | None:
        if self._resting:
            return None
        for name, contents in self._contents.items():
            added = sum(file.rows for file in contents.added)
            if added > max(TAIL_ENTRIES, ADDED_SHARE * sum(file.rows for file in contents.files)):
                return name
        return None

    def sizes(self) -> list[ArrangementSize]:
        """Return the sizes of the contents."""
        return [
            ArrangementSize(f"contents {name}", *contents.sizes())
            for name, contents in list(self._contents.items())
        ]

    # --- checkpoints

    def save(self, to: Writer) -> None:
        """Write the contents: their files as they are, and their tails."""
        for name, contents in self._contents.items():
            part = to.part(name)
            files = [*contents.files, *contents.added]
            described = [[file.bucket, file.rows] for file in files]
            about = {"files": described, "added": len(contents.added)}
            part.text("about", json.dumps(about).encode())
            for number, file in enumerate(files):
                part.file(str(number), file.kept)
            part.table("tail", self._tail(contents))

    def load_contents(
        self, saved: Reader, name: str, layout: Layout, clustering: Clustering | None
    ) -> None:
        """Take over contents that were written; raises Mismatch."""
        part = saved.part(name)
        try:
            about = json.loads(part.text("about"))
            described, added = about["files"], about["added"]
        except (ValueError, KeyError, TypeError) as error:
            raise Mismatch(f"{name} is not described") from error
        contents = Contents(layout, clustering)
        directory = self._directory()
        directory.mkdir()
        files = []
        for number, (bucket, rows) in enumerate(described):
            path = directory / f"part-{number}.parquet"
            files.append(StateFile(part.file(str(number), path), bucket, rows))
        contents.files = files[: len(files) - added]
        contents.added = files[len(files) - added :]
        tail = part.table("tail")
        if tail.column_names != layout.names:
            raise Mismatch(f"{name} has other columns")
        contents.tail = [tail] if tail.num_rows else []
        self._contents[name] = contents

    def clustering(self, name: str) -> Clustering | None:
        """Return how contents are kept in buckets."""
        return self._contents[name].clustering

    # --- tables

    def _show_changes(self, name: str, table: pa.Table) -> None:
        self._changes[name] = table.cast(arrow_schema(self._columns(name)))

    def _columns(self, name: str) -> tuple[tuple[str, str], ...]:
        layout = self._layouts[name]
        return (*layout.rows, *layout.sums)

    def _show_used(self, select: str) -> None:
        """Register what the statement names, if what it reads of it has changed."""
        touched, self._touched = self._touched, {}
        for name in _named(select, "d", "u_") & self._changes.keys():
            table = self._changes[name]
            if self._in_spark.get(name) is not table:
                self.show(name, table, self._columns(name))
                self._in_spark[name] = table
        for name in _named(select, "s") & self._contents.keys():
            contents = self._contents[name]
            paths = contents.paths(self._buckets(contents, touched.get(name)))
            self.files_read += len(paths)
            self.files_there += len(contents.files) + len(contents.added)
            wanted = (paths, len(contents.tail))
            if contents.shown == wanted:
                continue
            columns = contents.columns
            frames = [self.parquet(paths, columns)] if paths else []
            if contents.tail or not frames:
                frames.append(self.frame(self._tail(contents), columns))
            self.show_frame(name, frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1]))
            contents.shown = (paths, len(contents.tail))  # the tail may be one table now

    def _buckets(
        self, contents: Contents, touches: tuple[Touch, ...] | None
    ) -> frozenset[int] | None:
        """Return the buckets that changes touch, None for all."""
        clustering = contents.clustering
        if clustering is None or touches is None:
            return None
        found: frozenset[int] = frozenset()
        for touch in touches:
            changes = self._changes[touch.table]
            if changes.num_rows > ROWS_FOR_ALL * clustering.count:
                return None
            columns = [changes.column(f"c{i}") for i in touch.columns]
            found |= buckets_of(columns, clustering.count)
        return found

    def _tail(self, contents: Contents) -> pa.Table:
        """Return the tail as one table."""
        schema = arrow_schema(tuple(contents.columns))
        if not contents.tail:
            return _empty(schema)
        if len(contents.tail) == 1 and contents.tail[0].schema == schema:
            return contents.tail[0]
        tail = pa.concat_tables([table.cast(schema) for table in contents.tail])
        if tail.column(0).num_chunks > MOST_CHUNKS:
            tail = tail.combine_chunks()
        contents.tail = [tail]
        return tail

    # --- jobs

    @contextmanager
    def _jobs(self) -> Iterator[None]:
        """Let jobs belong to the store's group, and translate Spark's exceptions."""
        group = self._group
        jobs = nullcontext() if group is None else group(self._spark, self.cancellation)
        with jobs, faults(self.cancellation):
            yield

    def _renew(self) -> None:
        """Forget the session; the files are still there, and are shown again to the next one."""
        super()._renew()
        self._in_spark.clear()
        for contents in self._contents.values():
            contents.shown = None

    # --- files

    def _directory(self) -> Path:
        return self._scratch / f"generation{next(self._generations)}"

    def _write(self, select: str, clustering: Clustering | None) -> list[StateFile]:
        """Return the files to which a job has written the result of `select`."""
        directory = self._directory()
        self._show_used(select)
        with self._jobs():
            if clustering is None:
                writer = self.query(select).write
            else:
                frame = self.query(f"SELECT *, {clustering.select} AS {BUCKET} FROM ({select})")
                partitions = min(self._bulk.partitions, clustering.count)
                writer = frame.repartition(partitions, BUCKET).write.partitionBy(BUCKET)
            writer.option("compression", "lz4_raw").parquet(str(directory))
        return written_files(directory)

    def _write_tail(self, contents: Contents) -> None:
        """Write the tail to a file, with those that ticks have added if these are many."""
        merged = contents.added if len(contents.added) >= TAIL_FILES else []
        schema = arrow_schema(tuple(contents.columns))
        tables = [pq.read_table(file.path).cast(schema) for file in merged]
        table = pa.concat_tables([*tables, self._tail(contents)])
        kept = [] if merged else contents.added
        contents.added = [*kept, self._write_here(table, contents)]
        contents.tail, contents.shown = [], None

    def _write_here(self, table: pa.Table, contents: Contents) -> StateFile:
        """Write entries to a file, which has those of all buckets."""
        directory = self._directory()
        directory.mkdir()
        path = directory / "part-0.parquet"
        table = table.cast(arrow_schema(tuple(contents.columns)))
        pq.write_table(table, str(path), compression="lz4", store_schema=False)
        return StateFile(KeptFile(path), None, table.num_rows)


@lru_cache(1024)
def _empty(schema: pa.Schema) -> pa.Table:
    """Return the table without rows, always the same one."""
    return schema.empty_table()


def _named(select: str, *prefixes: str) -> set[str]:
    """Return the tables that a statement names, of some kinds."""
    return {name for name in _NAMES.findall(select) if name.startswith(prefixes)}
