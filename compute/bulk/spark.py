"""Spark as an engine: state in Parquet files, and a Spark job for each statement of a step.

The contents of a trace are Parquet files in the dataflow's scratch directory, written at hydration,
and a tail of Arrow tables on the driver, added by ticks. A large tail is written to a file. When
the added files are as large as the rest, a job consolidates all of them. Statements name the files
and their schema, so Spark neither lists directories nor infers schemas. Changes are small and are
exchanged as Arrow. Nothing has to be durable: a lost replica hydrates again from the shards.
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

from foreshore.compute.bulk.aggregates import COMOMENT_FLOAT, FRAMED, SUM_FLOAT, SparkIdioms
from foreshore.compute.bulk.dialect import ArrowFunction
from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.bulk.exact import comoment_float_lists, sum_float_lists
from foreshore.compute.bulk.framed import framed_comoments, framed_sums
from foreshore.compute.bulk.session import Columns, Session
from foreshore.compute.bulk.spark_dialect import SparkDialect, configure_spark, register_spark
from foreshore.compute.delta.tables import Layout, by_position, consolidate_select
from foreshore.compute.engine import Cancellation, check_size
from foreshore.compute.replica.batch_sizing import BatchSizing
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.errors import NumericValueOutOfRange, OutOfMemory, QueryCanceled

logger = logging.getLogger(__name__)

# A tail of more entries than this is written to a file.
TAIL_ENTRIES = 20_000
# Files added by ticks are merged with the others when there are this many.
TAIL_FILES = 8

# PySpark logs every analysis error with the whole statement; relevant errors are raised.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


class SparkEngine(BulkEngine):
    """An engine over this process's Spark."""

    name = "spark"

    def __init__(self, options: SparkOptions) -> None:
        super().__init__()
        self._options = options
        self.service = SparkService(options)
        self._spark = self.service.session()

    def check(self) -> None:
        """Raise Unavailable if the JVM has ended, or Spark in it has stopped."""
        self.service.check()

    def close(self) -> None:
        """Leave the session to other users in the process; `stop_spark` ends it."""

    @contextmanager
    def _session(self, number: int, cancellation: Cancellation) -> Iterator[Session]:
        """Yield a session whose jobs `cancellation` stops."""
        with _faults(cancellation):
            session = SparkSqlSession(self._new_session())
        try:
            group = self.service.group(self._spark, f"evaluation {number}", cancellation)
            with self._running_until_done(cancellation), _faults(cancellation), group:
                yield session
        finally:
            session.close()

    def _store(self, number: int) -> "SparkStore":
        scratch = self._options.scratch / f"dataflow{number}"
        return SparkStore(self._new_session(), scratch)

    def _new_session(self) -> Any:
        session = self._spark.newSession()
        parallelism = self._spark.sparkContext.defaultParallelism
        _tune(session, self._options.shuffle_partitions or 2 * parallelism)
        return session


def _tune(session: Any, partitions: int | None = None) -> None:
    """Configure the session for large jobs, with so many partitions, or for many small ones."""
    session.conf.set("spark.sql.shuffle.partitions", str(partitions or 1))
    session.conf.set("spark.sql.adaptive.enabled", "true" if partitions else "false")


class SparkSqlSession(Session):
    """Statements on a separate Spark session, in which external tables are views."""

    def __init__(self, spark: Any) -> None:
        super().__init__(SparkDialect(), SparkIdioms())
        self._spark = spark
        self._views: set[str] = set()
        configure_spark(spark)
        spark.udf.register(SUM_FLOAT, _float_function(sum_float_lists))
        spark.udf.register(COMOMENT_FLOAT, _float_function(comoment_float_lists))
        spark.udf.register(FRAMED["sum_float"], _float_function(framed_sums, lists=True))
        spark.udf.register(FRAMED["comoment_float"], _float_function(framed_comoments, lists=True))

    def show(self, name: str, table: pa.Table, columns: Columns) -> None:
        """Register an Arrow table under `name`."""
        self.show_frame(name, self.frame(table, columns))

    def files(self, name: str, paths: Sequence[str], columns: Columns) -> str:
        """Return the FROM item `name` for Parquet files of one schema."""
        self.show_frame(name, self.parquet(paths, columns))
        return name

    def release(self) -> None:
        """Drop inputs and constants."""
        self._hide(("files_", "tail_", "constant"))

    def register(self, functions: Sequence[ArrowFunction]) -> None:
        """Register `functions`."""
        register_spark(self._spark, functions)

    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return the result of `select`; the driver accepts at most a gigabyte."""
        rows = self.query(select).toArrow()
        if max_bytes is not None:
            check_size(rows.nbytes, max_bytes)
        return rows

    def query(self, select: str) -> Any:
        """Return the result of `select` as a data frame, after registering functions."""
        self.register_used()
        return self._spark.sql(select)

    def frame(self, table: pa.Table, columns: Columns) -> Any:
        """Return an Arrow table as a data frame with columns of these names and types."""
        return self._spark.createDataFrame(table, schema=_schema(columns))

    def parquet(self, paths: Sequence[str], columns: Columns) -> Any:
        """Return Parquet files of one schema as a data frame.

        Statistics omit NaNs, which are greater than their maximum. So comparisons of floats are not
        pushed down but evaluated as expressions. Spark treats paths as patterns.
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
        """Register a data frame under `name`."""
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
    """The contents of a trace: files, how many of them ticks have added, and the tail."""

    layout: Layout
    directory: Path
    files: list[str]
    added: int = 0
    tail: list[pa.Table] = field(default_factory=list)
    shown: bool = False

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Return all columns with their types."""
        return [*self.layout.rows, *self.layout.sums]


class SparkStore(SparkSqlSession):
    """The tables of one dataflow, as views of a separate session."""

    def __init__(self, spark: Any, scratch: Path) -> None:
        super().__init__(spark)
        self._scratch = scratch
        self._contents: dict[str, Contents] = {}
        self._layouts: dict[str, Layout] = {}
        self._changes: dict[str, pa.Table] = {}
        self._saved: dict[str, list[pa.Table]] = {}  # tails at the beginning of the step
        self._generations = count()
        self._bulk = True
        scratch.mkdir(parents=True)

    def batch_sizing(self) -> BatchSizing:
        """Return the batch sizing of a dataflow."""
        return BatchSizing(128, seconds=4.0)

    def hold(self, name: str, layout: Layout, select: str) -> None:
        """Create the contents `name` from `select`, written by a job."""
        self._contents[name] = self._write(layout, select)

    def forget(self, name: str) -> None:
        """Drop the contents `name`."""
        shutil.rmtree(self._contents.pop(name).directory)

    def prepare(self, name: str, layout: Layout) -> None:
        """Record the layout of the changes `name`."""
        self._layouts[name] = layout

    def begin(self) -> None:
        """Begin a step; the first one ends the phase of large jobs."""
        if self._bulk:
            _tune(self._spark)
            self._bulk = False

    def load(self, name: str, updates: pa.Table) -> None:
        """Set the changes `name` to `updates`."""
        self._show_changes(name, by_position(updates))

    def fill(self, name: str, select: str) -> bool:
        """Set the changes `name` to the result of `select`."""
        table = self.fetch(select)
        if table.num_rows:
            self._show_changes(name, table)
        return bool(table.num_rows)

    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return the result of `select` over the current tables."""
        self._show_used(select)
        with _faults(None):
            return super().fetch(select, max_bytes)

    def absorb(self, contents: str, changes: str) -> None:
        """Add changes to contents; the end of the step makes this permanent."""
        into = self._contents[contents]
        self._saved.setdefault(contents, list(into.tail))
        into.tail.append(self._changes[changes].select(into.layout.names))
        into.shown = False

    def clear(self, changed: Sequence[str]) -> None:
        """Forget changes."""
        for name in changed:
            del self._changes[name]

    def commit(self) -> None:
        """End the step, and write large tails to files."""
        absorbed, self._saved = self._saved, {}
        for name in absorbed:
            try:
                self._shorten(name)
            except Exception:
                # The step is done in any case: repeating it would add its changes twice. The tail
                # is written after the next step.
                logger.exception("contents could not be consolidated", extra={"contents": name})

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
        """Register the contents that the statement names, if they have changed."""
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
        """Consolidate the entries of contents with a job."""
        old = self._contents[name]
        new = self._write(old.layout, consolidate_select(name, old.layout, self.dialect))
        self._contents[name] = new
        shutil.rmtree(old.directory)


def _schema(columns: Columns) -> Any:
    """Return the schema of columns with these names and Spark types."""
    from pyspark.sql.types import StructType

    fields = (f"{SparkDialect.identifier(name)} {type}" for name, type in columns)
    return StructType.fromDDL(", ".join(fields))


def _float_function(compute: Callable[[pa.Array], pa.Array], *, lists: bool = False) -> Any:
    """Return a function of lists that gives a float or floats for each, as Spark takes it."""
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import ArrayType, DoubleType

    def function(lists: pa.Array) -> pa.Array:
        return compute(lists)

    return arrow_udf(function, ArrayType(DoubleType()) if lists else DoubleType())


@contextmanager
def _faults(cancellation: Cancellation | None) -> Iterator[None]:
    """Translate Spark's exceptions."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import ArithmeticException, PySparkException

    try:
        yield
    except ArithmeticException as error:
        raise NumericValueOutOfRange("value out of range") from error
    except (PySparkException, Py4JJavaError) as error:
        if cancellation is not None and cancellation.cancelled:
            raise QueryCanceled from error
        if "spark.driver.maxResultSize" in str(error):  # 1 GB of results not received yet
            raise OutOfMemory("The result is larger than spark.driver.maxResultSize.") from error
        raise
