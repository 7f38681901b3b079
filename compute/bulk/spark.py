"""Spark as an engine: state in Parquet, a job per step of the program.

Contents of a trace are Parquet files in the dataflow's scratch directory, written by the hydration
job, and a tail of Arrow tables on the driver that the ticks have added; when the tail has grown it
becomes a file, and when files have grown as much as what was there, a job adds them all up. Files
are named and their schema given, so that Spark neither lists nor infers. Changes are small and
travel as Arrow, both ways. Nothing here has to be durable: a replica that is lost hydrates anew
from the shards.
"""

import logging
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.bulk.aggregates import COMOMENT_FLOAT, SUM_FLOAT, SparkIdioms
from foreshore.compute.bulk.dialect import ArrowFunction
from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.bulk.exact import comoment_float_lists, sum_float_lists
from foreshore.compute.bulk.session import Columns, Session
from foreshore.compute.bulk.spark_dialect import SparkDialect, configure_spark, register_spark
from foreshore.compute.bulk.spark_session import SparkOptions, end_of, start_spark
from foreshore.compute.delta.tables import Layout, by_position, consolidate_select
from foreshore.compute.engine import Cancellation, check_size
from foreshore.compute.replica.batch_sizing import BatchSizing
from foreshore.errors import NumericValueOutOfRange, OutOfMemory, QueryCanceled, Unavailable

logger = logging.getLogger(__name__)

# A tail of more entries than this becomes a file.
TAIL_ENTRIES = 20_000
# Files that ticks have added are merged with the others when there are this many.
TAIL_FILES = 8

# PySpark logs every analysis error with the whole statement; what matters is raised.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


class SparkEngine(BulkEngine):
    """An engine over this process's Spark."""

    name = "spark"

    def __init__(self, options: SparkOptions) -> None:
        super().__init__()
        self._options = options
        self._spark = start_spark(options)

    def check(self) -> None:
        """Raise Unavailable if the JVM has ended, or Spark has stopped in it."""
        if (how := end_of(self._spark.sparkContext)) is not None:
            raise Unavailable(how)

    def close(self) -> None:
        """Leave the session to others of the process; `stop_spark` ends it."""

    @contextmanager
    def _session(self, number: int, cancellation: Cancellation) -> Iterator[Session]:
        """Give a session whose jobs `cancellation` stops."""
        with _faults(cancellation):
            session = SparkSqlSession(_new_session(self._spark))
        context = self._spark.sparkContext
        group = f"evaluation{number}"
        context.setJobGroup(group, group, interruptOnCancel=True)
        jvm_context = context._jsc.sc()

        def stop() -> None:
            jvm_context.cancelJobGroupAndFutureJobs(group)

        try:
            with self._cancellable(cancellation, stop), _faults(cancellation):
                yield session
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
            session.close()

    def _store(self, number: int) -> "SparkStore":
        scratch = self._options.scratch / f"dataflow{number}"
        return SparkStore(_new_session(self._spark), scratch)


def _new_session(spark: Any) -> Any:
    session = spark.newSession()
    _tune(session, bulk=True)
    return session


def _tune(session: Any, *, bulk: bool) -> None:
    """Set the session up for large jobs, or for many small ones."""
    parallelism = session.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", str(2 * parallelism if bulk else 1))
    session.conf.set("spark.sql.adaptive.enabled", "true" if bulk else "false")


class SparkSqlSession(Session):
    """Statements on a Spark session of their own, in which tables from outside are views."""

    def __init__(self, spark: Any) -> None:
        super().__init__(SparkDialect(), SparkIdioms())
        self._spark = spark
        self._views: set[str] = set()
        configure_spark(spark)
        spark.udf.register(SUM_FLOAT, _float_function(sum_float_lists))
        spark.udf.register(COMOMENT_FLOAT, _float_function(comoment_float_lists))

    def show(self, name: str, table: pa.Table, columns: Columns) -> None:
        """Let `name` stand for an Arrow table."""
        self.show_frame(name, self.frame(table, columns))

    def files(self, name: str, paths: Sequence[str], columns: Columns) -> str:
        """Return the FROM item `name` for Parquet files of one schema."""
        self.show_frame(name, self.parquet(paths, columns))
        return name

    def release(self) -> None:
        """Let go of inputs and constants."""
        self._hide(("files_", "tail_", "constant"))

    def register(self, functions: Sequence[ArrowFunction]) -> None:
        """Make `functions` callable."""
        register_spark(self._spark, functions)

    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return what `select` gives; the driver itself takes no more than a gigabyte."""
        rows = self.query(select).toArrow()
        if max_bytes is not None:
            check_size(rows.nbytes, max_bytes)
        return rows

    def query(self, select: str) -> Any:
        """Return what `select` gives as a data frame, with the functions registered it may call."""
        self.register_used()
        return self._spark.sql(select)

    def frame(self, table: pa.Table, columns: Columns) -> Any:
        """Return an Arrow table as a data frame with columns of these names and types."""
        return self._spark.createDataFrame(table, schema=_schema(columns))

    def parquet(self, paths: Sequence[str], columns: Columns) -> Any:
        """Return Parquet files of one schema as a data frame.

        Statistics leave NaNs out, which are greater than the greatest that they name. So floats are
        not compared where they lie, but as values of an expression. Paths are patterns to Spark.
        """
        literally = [re.sub(r"[][{}*?\\]", r"\\\g<0>", path) for path in paths]
        frame = self._spark.read.schema(_schema(columns)).parquet(*literally)
        items = []
        for name, type in columns:
            quoted = SparkDialect.identifier(name)
            inexact = type in ("FLOAT", "DOUBLE")
            items.append(f"nanvl({quoted}, {quoted}) AS {quoted}" if inexact else quoted)
        return frame.selectExpr(*items)

    def show_frame(self, name: str, frame: Any) -> None:
        """Let `name` stand for a data frame in statements."""
        frame.createOrReplaceTempView(name)
        self._views.add(name)

    def close(self) -> None:
        """Drop the views."""
        self._hide(("",))

    def _hide(self, prefixes: tuple[str, ...]) -> None:
        """Drop the views whose names begin with one of `prefixes`."""
        for name in [name for name in self._views if name.startswith(prefixes)]:
            self._spark.catalog.dropTempView(name)
            self._views.remove(name)


@dataclass(slots=True)
class Contents:
    """What a trace holds: files, how many of them ticks have added, and the tail after them."""

    layout: Layout
    directory: Path
    files: list[str]
    added: int = 0
    tail: list[pa.Table] = field(default_factory=list)
    shown: bool = False

    @property
    def columns(self) -> list[tuple[str, str]]:
        """All columns with their types."""
        return [*self.layout.rows, *self.layout.sums]


class SparkStore(SparkSqlSession):
    """The tables of one dataflow: views of a session of their own."""

    def __init__(self, spark: Any, scratch: Path) -> None:
        super().__init__(spark)
        self._scratch = scratch
        self._contents: dict[str, Contents] = {}
        self._layouts: dict[str, Layout] = {}
        self._changes: dict[str, pa.Table] = {}
        self._saved: dict[str, list[pa.Table]] = {}  # tails as they were when the step began
        self._generations = count()
        self._bulk = True
        scratch.mkdir(parents=True)

    def batch_sizing(self) -> BatchSizing:
        """Return the pace of a dataflow."""
        return BatchSizing(128, seconds=4.0)

    def hold(self, name: str, layout: Layout, select: str) -> None:
        """Make the contents `name` what `select` gives, written by a job."""
        self._contents[name] = self._write(layout, select)

    def forget(self, name: str) -> None:
        """Drop the contents `name`."""
        shutil.rmtree(self._contents.pop(name).directory)

    def prepare(self, name: str, layout: Layout) -> None:
        """Take note of the layout of the changes `name`."""
        self._layouts[name] = layout

    def begin(self) -> None:
        """Begin a step; the first one ends the time of large jobs."""
        if self._bulk:
            _tune(self._spark, bulk=False)
            self._bulk = False

    def load(self, name: str, updates: pa.Table) -> None:
        """Make the changes `name` those `updates`."""
        self._show_changes(name, by_position(updates))

    def fill(self, name: str, select: str) -> bool:
        """Make the changes `name` what `select` gives."""
        table = self.fetch(select)
        if table.num_rows:
            self._show_changes(name, table)
        return bool(table.num_rows)

    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return what `select` gives, over what is there now."""
        self._show_used(select)
        with _faults(None):
            return super().fetch(select, max_bytes)

    def absorb(self, contents: str, changes: str) -> None:
        """Add changes to contents, for good when the step ends."""
        into = self._contents[contents]
        self._saved.setdefault(contents, list(into.tail))
        into.tail.append(self._changes[changes].select(into.layout.names))
        into.shown = False

    def clear(self, changed: Sequence[str]) -> None:
        """Forget changes."""
        for name in changed:
            del self._changes[name]

    def commit(self) -> None:
        """End the step, and write what has become long."""
        absorbed, self._saved = self._saved, {}
        for name in absorbed:
            try:
                self._shorten(name)
            except Exception:
                # The step is done whatever becomes of this: to try it again would add its changes
                # twice. What is long stays so until the next step.
                logger.exception("contents could not be put together", extra={"contents": name})

    def rollback(self) -> None:
        """Undo the step."""
        for name, tail in self._saved.items():
            self._contents[name].tail = tail
            self._contents[name].shown = False
        self._saved.clear()
        self._changes.clear()

    def close(self) -> None:
        """Drop the views and the files."""
        super().close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _show_changes(self, name: str, table: pa.Table) -> None:
        layout = self._layouts[name]
        columns = [*layout.rows, *layout.sums]
        self.show(name, table, columns)
        self._changes[name] = table

    def _show_used(self, select: str) -> None:
        """Show those contents that the statement names, where they have changed."""
        for name in set(re.findall(r"\bs\d+\b", select)):
            contents = self._contents.get(name)
            if contents is None or contents.shown:
                continue
            columns = contents.columns
            frames = [self.parquet(contents.files, columns)] if contents.files else []
            if contents.tail or not frames:
                frames.append(self.frame(self._tail(contents), columns))
            self.show_frame(name, frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1]))
            contents.shown = True

    def _tail(self, contents: Contents) -> pa.Table:
        """Return the tail as one table."""
        if not contents.tail:
            fields = _schema(contents.columns).fieldNames()
            return pa.table({name: pa.nulls(0) for name in fields})
        if len(contents.tail) > 1:
            contents.tail = [pa.concat_tables(contents.tail, promote_options="permissive")]
        return contents.tail[0]

    def _write(self, layout: Layout, select: str) -> Contents:
        directory = self._scratch / f"generation{next(self._generations)}"
        self._show_used(select)
        with _faults(None):
            frame = self.query(select)
            frame.write.option("compression", "lz4_raw").parquet(str(directory))
        files = sorted(str(path) for path in directory.glob("part-*.parquet"))
        return Contents(layout, directory, files)

    def _shorten(self, name: str) -> None:
        contents = self._contents[name]
        if sum(table.num_rows for table in contents.tail) > TAIL_ENTRIES:
            self._write_tail(contents)
        if contents.added > TAIL_FILES:
            self._consolidate(name)

    def _write_tail(self, contents: Contents) -> None:
        path = str(contents.directory / f"tail-{contents.added}.parquet")
        pq.write_table(self._tail(contents), path, compression="lz4", store_schema=False)
        contents.files.append(path)
        contents.added += 1
        contents.tail = []

    def _consolidate(self, name: str) -> None:
        """Let a job add up the entries of contents."""
        old = self._contents[name]
        new = self._write(old.layout, consolidate_select(name, old.layout, self.dialect))
        self._contents[name] = new
        shutil.rmtree(old.directory)


def _schema(columns: Columns) -> Any:
    """Return the schema of columns with these names and Spark types."""
    from pyspark.sql.types import StructType

    fields = (f"{SparkDialect.identifier(name)} {type}" for name, type in columns)
    return StructType.fromDDL(", ".join(fields))


def _float_function(compute: Callable[[pa.Array], pa.Array]) -> Any:
    """Return a function of lists that gives a float for each, as Spark takes it."""
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import DoubleType

    def function(lists: pa.Array) -> pa.Array:
        return compute(lists)

    return arrow_udf(function, DoubleType())


@contextmanager
def _faults(cancellation: Cancellation | None) -> Iterator[None]:
    """Make Spark's exceptions ours."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import ArithmeticException, PySparkException

    try:
        yield
    except ArithmeticException as error:
        raise NumericValueOutOfRange("value out of range") from error
    except (PySparkException, Py4JJavaError) as error:
        if cancellation is not None and cancellation.cancelled:
            raise QueryCanceled from error
        if "spark.driver.maxResultSize" in str(error):  # which is 1 GB, of what has not come yet
            raise OutOfMemory("The result is larger than spark.driver.maxResultSize.") from error
        raise
