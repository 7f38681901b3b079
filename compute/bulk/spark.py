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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.bulk.aggregates import SUM_FLOAT, Idioms, SparkIdioms
from foreshore.compute.bulk.dialect import Dialect
from foreshore.compute.bulk.evaluate import check_result, plans_of, raise_least
from foreshore.compute.bulk.exact import sum_float_lists
from foreshore.compute.bulk.render import Renderer
from foreshore.compute.bulk.spark_dialect import SparkDialect, configure_spark, register_spark
from foreshore.compute.delta.describe import describe_plan
from foreshore.compute.delta.differentiate import differentiate
from foreshore.compute.delta.tables import (
    Layout,
    by_position,
    conform,
    consolidate_select,
    constant_table,
)
from foreshore.compute.delta.tick import TickDataflow
from foreshore.compute.engine import Cancellation, Dataflow, Input, result_schema
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.spark_session import SparkOptions, start_spark
from foreshore.errors import NumericValueOutOfRange, QueryCanceled
from foreshore.expr.ir import Constant, Get, Relation, columns_of, sources_of, walk_relations
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import DIFF, TIME

# A tail of more entries than this becomes a file.
TAIL_ENTRIES = 20_000
# Files that ticks have added are merged with the others when there are this many.
TAIL_FILES = 8

# PySpark logs every analysis error with the whole statement; what matters is raised.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


class SparkEngine:
    """An engine over this process's Spark."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._spark = start_spark(options)
        self._numbers = count()
        self._lock = Lock()
        self._running: set[Cancellation] = set()

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow, not yet hydrated."""
        plan = differentiate(plans_of(description.relation).all)
        missing = set(plan.inputs) - set(schemas)
        assert not missing, f"no schema of {missing}"
        scratch = self._options.scratch / f"dataflow{next(self._numbers)}"
        return TickDataflow(plan, SparkStore(_new_session(self._spark), scratch), description.as_of)

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        plans = plans_of(relation)
        cancellation = cancellation or Cancellation()
        with self._session(cancellation) as session, _faults(cancellation):
            if plans.errors is not None:
                raise_least(_evaluate(session, plans.errors, inputs, as_of))
            return check_result(relation, _evaluate(session, plans.rows, inputs, as_of))

    def cancel(self) -> None:
        """Stop all evaluations that run now."""
        with self._lock:
            running = list(self._running)
        for cancellation in running:
            cancellation.cancel()

    def describe(self, relation: Relation) -> str:
        """Return how the engine maintains `relation`."""
        return describe_plan("spark", differentiate(plans_of(relation).all))

    def close(self) -> None:
        """Leave the session to others of the process; `stop_spark` ends it."""

    @contextmanager
    def _session(self, cancellation: Cancellation) -> Iterator["Session"]:
        """Give a session whose jobs `cancellation` stops."""
        session = Session(_new_session(self._spark))
        context = session.spark.sparkContext
        group = f"evaluation{next(self._numbers)}"
        with self._lock:
            self._running.add(cancellation)
        context.setJobGroup(group, group, interruptOnCancel=True)
        jvm_context = context._jsc.sc()
        try:
            cancellation.arm(lambda: jvm_context.cancelJobGroupAndFutureJobs(group))
            yield session
            if cancellation.cancelled:
                raise QueryCanceled
        finally:
            cancellation.disarm()
            context.setLocalProperty("spark.jobGroup.id", None)
            with self._lock:
                self._running.discard(cancellation)
            session.close()


def _new_session(spark: Any) -> Any:
    session = spark.newSession()
    _tune(session, bulk=True)
    return session


def _tune(session: Any, *, bulk: bool) -> None:
    """Set the session up for large jobs, or for many small ones."""
    parallelism = session.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", str(2 * parallelism if bulk else 1))
    session.conf.set("spark.sql.adaptive.enabled", "true" if bulk else "false")


def _evaluate(
    session: "Session", relation: Relation, inputs: Mapping[GlobalId, Input], as_of: int
) -> pa.Table:
    columns = {n.id: n.columns for n in walk_relations(relation) if isinstance(n, Get)}
    needed = {id: inputs[id] for id in sources_of(relation)}
    sources = session.register_inputs(needed, columns, as_of)
    renderer = Renderer(session.dialect, session.idioms, sources, constant=session.constant)
    select = renderer.consolidated(relation)
    return conform(session.sql(select).toArrow(), result_schema(columns_of(relation)))


class Session:
    """A Spark session with a dialect, whose functions it registers, and views by name."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.dialect: Dialect = SparkDialect()
        self.idioms: Idioms = SparkIdioms()
        self._registered = 0
        self._views: set[str] = set()
        self._constants = count()
        configure_spark(spark)
        spark.udf.register(SUM_FLOAT, _sum_float_function())

    def sql(self, text: str) -> Any:
        """Return the result of a rendered statement, with the functions registered it may call."""
        if len(self.dialect.used) > self._registered:
            register_spark(self.spark, list(self.dialect.used.values()))
            self._registered = len(self.dialect.used)
        return self.spark.sql(text)

    def show(self, name: str, frame: Any) -> None:
        """Let `name` stand for a data frame in statements."""
        frame.createOrReplaceTempView(name)
        self._views.add(name)

    def frame(self, table: pa.Table, columns: Sequence[tuple[str, str]]) -> Any:
        """Return an Arrow table as a data frame with columns of these names and types."""
        return self.spark.createDataFrame(table, schema=_schema(columns))

    def constant(self, constant: Constant) -> str:
        """Return a FROM item for a constant: c0, ..., d."""
        name = f"constant{next(self._constants)}"
        types = [self.dialect.type_name(column.type) for column in constant.columns]
        columns = [(f"c{i}", type) for i, type in enumerate(types)]
        self.show(name, self.frame(constant_table(constant), [*columns, ("d", "BIGINT")]))
        return name

    def files(self, paths: Sequence[str], columns: Sequence[tuple[str, str]]) -> Any:
        """Return Parquet files of one schema as a data frame."""
        return self.spark.read.schema(_schema(columns)).parquet(*paths)

    def register_inputs(
        self,
        inputs: Mapping[GlobalId, Input],
        columns: Mapping[GlobalId, Sequence[ColumnType]],
        as_of: int,
    ) -> Mapping[GlobalId, str]:
        """Return FROM items for the contents of `inputs` as of a time: c0, ..., d."""
        sources = {}
        for id, input in inputs.items():
            types = [self.dialect.type_name(column.type) for column in columns[id]]
            named = [(name, type) for name, type in zip(input.schema.names, types, strict=True)]
            placed = [(f"c{i}", type) for i, type in enumerate(types)]
            selects = []
            if input.files:
                stored = [*named, (TIME, "BIGINT"), (DIFF, "BIGINT")]
                self.show(f"files_{id}", self.files(input.files, stored))
                items = [f"{_identifier(name)} AS c{i}" for i, (name, _) in enumerate(named)]
                selects.append(
                    f"SELECT {', '.join([*items, f'{DIFF} AS d'])} FROM files_{id} "
                    f"WHERE {TIME} <= {as_of}"
                )
            tail = [by_position(table) for table in input.tail if table.num_rows]
            if tail or not selects:
                updates = pa.concat_tables(tail) if tail else self._nothing(input, placed)
                timed = [*placed, ("t", "BIGINT"), ("d", "BIGINT")]
                self.show(f"tail_{id}", self.frame(updates, timed))
                items = [name for name, _ in placed]
                selects.append(
                    f"SELECT {', '.join([*items, 'd'])} FROM tail_{id} WHERE t <= {as_of}"
                )
            sources[id] = f"({' UNION ALL '.join(selects)})"
        return sources

    def _nothing(self, input: Input, placed: Sequence[tuple[str, str]]) -> pa.Table:
        names = [*(name for name, _ in placed), "t", "d"]
        types = [*(field.type for field in input.schema), pa.int64(), pa.int64()]
        return pa.schema(list(zip(names, types, strict=True))).empty_table()

    def close(self) -> None:
        """Drop the views."""
        self.hide(("",))

    def hide(self, prefixes: tuple[str, ...]) -> None:
        """Drop the views whose names begin with one of `prefixes`."""
        for name in [name for name in self._views if name.startswith(prefixes)]:
            self.spark.catalog.dropTempView(name)
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


class SparkStore:
    """The tables of one dataflow: views of a session of their own."""

    points = 128  # a job costs as much as looking at very many rows

    def __init__(self, spark: Any, scratch: Path) -> None:
        self._session = Session(spark)
        self.dialect = self._session.dialect
        self.idioms = self._session.idioms
        self._scratch = scratch
        self._contents: dict[str, Contents] = {}
        self._layouts: dict[str, Layout] = {}
        self._changes: dict[str, pa.Table] = {}
        self._saved: dict[str, list[pa.Table]] = {}  # tails as they were when the step began
        self._generations = count()
        self._bulk = True
        scratch.mkdir(parents=True)

    def sources(
        self,
        inputs: Mapping[GlobalId, Input],
        columns: Mapping[GlobalId, Sequence[ColumnType]],
        as_of: int,
    ) -> Mapping[GlobalId, str]:
        """Return a FROM item for each input."""
        return self._session.register_inputs({id: inputs[id] for id in columns}, columns, as_of)

    def constant(self, constant: Constant) -> str:
        """Return a FROM item for a constant."""
        return self._session.constant(constant)

    def hold(self, name: str, layout: Layout, select: str) -> None:
        """Make the contents `name` what `select` gives, written by a job."""
        self._contents[name] = self._write(layout, select)

    def release(self) -> None:
        """Let go of inputs and constants."""
        self._session.hide(("files_", "tail_", "constant"))

    def forget(self, name: str) -> None:
        """Drop the contents `name`."""
        shutil.rmtree(self._contents.pop(name).directory)

    def prepare(self, name: str, layout: Layout) -> None:
        """Take note of the layout of the changes `name`."""
        self._layouts[name] = layout

    def begin(self) -> None:
        """Begin a step; the first one ends the time of large jobs."""
        if self._bulk:
            _tune(self._session.spark, bulk=False)
            self._bulk = False

    def load(self, name: str, updates: pa.Table) -> None:
        """Make the changes `name` those `updates`."""
        self._show_changes(name, by_position(updates))

    def fill(self, name: str, select: str) -> bool:
        """Make the changes `name` what `select` gives."""
        table = self._sql(select)
        if table.num_rows:
            self._show_changes(name, table)
        return bool(table.num_rows)

    def read(self, select: str, schema: pa.Schema) -> pa.Table:
        """Return what `select` gives."""
        return conform(self._sql(select), schema)

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
        for name in self._saved:
            contents = self._contents[name]
            if sum(table.num_rows for table in contents.tail) > TAIL_ENTRIES:
                self._write_tail(contents)
            if contents.added > TAIL_FILES:
                self._consolidate(name)
        self._saved.clear()

    def rollback(self) -> None:
        """Undo the step."""
        for name, tail in self._saved.items():
            self._contents[name].tail = tail
            self._contents[name].shown = False
        self._saved.clear()
        self._changes.clear()

    def close(self) -> None:
        """Drop the views and the files."""
        self._session.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _sql(self, select: str) -> pa.Table:
        """Return the result of a statement over what is there now."""
        self._show_used(select)
        with _faults(None):
            return self._session.sql(select).toArrow()

    def _show_changes(self, name: str, table: pa.Table) -> None:
        layout = self._layouts[name]
        columns = [*layout.rows, *layout.sums]
        self._session.show(name, self._session.frame(table, columns))
        self._changes[name] = table

    def _show_used(self, select: str) -> None:
        """Show those contents that the statement names, where they have changed."""
        for name in set(re.findall(r"\bs\d+\b", select)):
            contents = self._contents.get(name)
            if contents is None or contents.shown:
                continue
            session, columns = self._session, contents.columns
            frames = [session.files(contents.files, columns)] if contents.files else []
            if contents.tail or not frames:
                frames.append(session.frame(self._tail(contents), columns))
            session.show(name, frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1]))
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
            frame = self._session.sql(select)
            frame.write.option("compression", "lz4_raw").parquet(str(directory))
        files = sorted(str(path) for path in directory.glob("part-*.parquet"))
        return Contents(layout, directory, files)

    def _write_tail(self, contents: Contents) -> None:
        path = str(contents.directory / f"tail-{contents.added}.parquet")
        pq.write_table(self._tail(contents), path, compression="lz4", store_schema=False)
        contents.files.append(path)
        contents.added += 1
        contents.tail = []

    def _consolidate(self, name: str) -> None:
        """Let a job add up the entries of contents."""
        old = self._contents[name]
        new = self._write(old.layout, consolidate_select(name, old.layout))
        self._contents[name] = new
        shutil.rmtree(old.directory)


def _schema(columns: Sequence[tuple[str, str]]) -> Any:
    """Return the schema of columns with these names and Spark types."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(", ".join(f"{_identifier(name)} {type}" for name, type in columns))


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _sum_float_function() -> Any:
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import DoubleType

    def sum_float(lists: pa.Array) -> pa.Array:
        return sum_float_lists(lists)

    return arrow_udf(sum_float, DoubleType())


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
        raise
