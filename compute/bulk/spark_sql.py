"""Statements on Spark: a session whose views are Arrow tables and Parquet files.

Statements name files and their schema, so Spark neither lists directories nor infers schemas.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from foreshore.compute.bulk.session import Columns, Form, Session
from foreshore.compute.bulk.spark_files import Results, scratch_of
from foreshore.compute.bulk.spark_types import schema_of
from foreshore.compute.engine import Cancellation, Input, check_size
from foreshore.compute.render.aggregates import COMOMENT_FLOAT, FRAMED, SUM_FLOAT, SparkIdioms
from foreshore.compute.render.dialect import ArrowFunction
from foreshore.compute.render.exact import comoment_float_lists, sum_float_lists
from foreshore.compute.render.framed import framed_comoments, framed_sums
from foreshore.compute.render.kernel_errors import carried_in
from foreshore.compute.render.spark_dialect import SparkDialect, configure_spark, register_spark
from foreshore.compute.spark.session import end_of, is_gone
from foreshore.errors import NumericValueOutOfRange, OutOfMemory, QueryCanceled
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId

SMALL_BYTES = 8 << 20  # of the inputs of a query

T = TypeVar("T")
logger = logging.getLogger(__name__)

# PySpark logs every analysis error with the whole statement; relevant errors are raised.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a session runs statements.

    Large jobs have several partitions, and plans that Spark adapts to their data, stage by stage.
    Small ones have one. Where each statement is run once, over few rows, generating code for it
    takes longer than interpreting it.
    """

    partitions: int = 1
    interpreted: bool = False

    def apply(self, session: Any) -> None:
        """Configure a Spark session."""
        settings = {
            "spark.sql.shuffle.partitions": str(self.partitions),
            "spark.sql.adaptive.enabled": _truth(self.partitions > 1),
            "spark.sql.codegen.wholeStage": _truth(not self.interpreted),
            "spark.sql.codegen.factoryMode": "NO_CODEGEN" if self.interpreted else "FALLBACK",
        }
        for name, value in settings.items():
            session.conf.set(name, value)


def _truth(value: bool) -> str:
    return "true" if value else "false"


class SparkSqlSession(Session):
    """Statements on a separate Spark session, in which external tables are views.

    The session is opened, by `open`, when the first statement needs it. Large jobs have
    `partitions` partitions, by default two for each core.
    """

    def __init__(self, open: Callable[[], Any], partitions: int | None = None) -> None:
        super().__init__(SparkDialect(), SparkIdioms())
        self._open = open
        self._opened: Any = None
        self._partitions = partitions
        self._tuning: Tuning | None = None
        self._views: set[str] = set()
        self._missing = set(_OF_FLOATS)  # functions that are not registered yet
        self._results = Results(lambda: scratch_of(self._spark))

    @property
    def _spark(self) -> Any:
        """Return the Spark session; waits for Spark to start."""
        if self._opened is None:
            spark = self._open()
            configure_spark(spark)
            self._opened = spark
            self.tune(self._bulk)
        return self._opened

    @property
    def _bulk(self) -> Tuning:
        """Return how large jobs run."""
        return Tuning(self._partitions or 2 * self._spark.sparkContext.defaultParallelism)

    def lasting(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; it is repeated, on another JVM, if Spark's ends meanwhile.

        `work` must leave nothing behind that hinders this when it raises.
        """
        if self._opened is not None and is_gone(self._opened.sparkContext):
            self._renew()
        try:
            return work()
        except QueryCanceled:
            raise
        except Exception as error:
            context = None if self._opened is None else self._opened.sparkContext
            if context is None or (how := end_of(context)) is None:
                raise
            logger.warning("work on Spark is repeated", extra={"why": how, "error": repr(error)})
            self._renew()
        return work()

    def _renew(self) -> None:
        """Forget the session and what it had; the next statement opens another."""
        self._opened = None
        self._tuning = None
        self._views.clear()
        self._missing = set(_OF_FLOATS)
        self._registered = 0
        self._items.clear()

    def tune(self, tuning: Tuning) -> None:
        """Run the next statements so."""
        if tuning != self._tuning:
            tuning.apply(self._spark)
            self._tuning = tuning

    def _select(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        form: Form,
        bounds: str = "",
    ) -> str:
        sizes = [sum(map(os.path.getsize, inputs[id].files)) for id in sources_of(relation)]
        sizes += [table.nbytes for id in sources_of(relation) for table in inputs[id].tail]
        self.tune(self._bulk if sum(sizes) > SMALL_BYTES else Tuning(interpreted=True))
        return super()._select(relation, inputs, as_of, form, bounds)

    def show(self, name: str, table: pa.Table, columns: Columns) -> None:
        """Register an Arrow table under `name`."""
        self.show_frame(name, self.frame(table, columns))

    def files(self, name: str, paths: Sequence[str], columns: Columns) -> str:
        """Return the FROM item `name` for Parquet files of one schema."""
        self.show_frame(name, self.parquet(paths, columns))
        self._results.reads(paths)
        return name

    def release(self) -> None:
        """Drop inputs and constants."""
        self._results.forget()
        self._hide(("files_", "tail_", "constant"))

    def register(self, functions: Sequence[ArrowFunction]) -> None:
        """Register `functions`."""
        register_spark(self._spark, functions)

    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return the result of `select`, of which Spark itself sends at most a gigabyte."""
        if self._results.are_large:
            return pa.concat_tables(self.stream(select, max_bytes))
        rows = self.query(select).toArrow()
        if max_bytes is not None:
            check_size(rows.nbytes, max_bytes)
        return rows

    def stream(self, select: str, max_bytes: int | None = None) -> Iterator[pa.Table]:
        """Yield what `select` gives, part by part; the driver holds one if it reads much."""
        if not self._results.are_large:
            yield self.fetch(select, max_bytes)
            return
        size = 0
        for part in self._results.of(self.query(select)):
            size += part.nbytes
            if max_bytes is not None:
                check_size(size, max_bytes)
            yield part

    def query(self, select: str) -> Any:
        """Return the result of `select` as a data frame, after registering functions."""
        self.register_used()
        for name in [name for name in self._missing if name in select]:
            self._spark.udf.register(name, _float_function(name))
            self._missing.remove(name)
        return self._spark.sql(select)

    def frame(self, table: pa.Table, columns: Columns) -> Any:
        """Return an Arrow table as a data frame with columns of these names and types."""
        return self._spark.createDataFrame(table, schema=schema_of(columns))

    def parquet(self, paths: Sequence[str], columns: Columns) -> Any:
        """Return Parquet files of one schema as a data frame.

        Statistics omit NaNs, which are greater than their maximum. So comparisons of floats are not
        pushed down but evaluated as expressions. Spark treats paths as patterns.
        """
        literally = [re.sub(r"[][{}*?\\]", r"\\\g<0>", path) for path in paths]
        frame = self._spark.read.schema(schema_of(columns)).parquet(*literally)
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
        """Drop the views, and results that were not read."""
        if self._opened is not None and not is_gone(self._opened.sparkContext):
            self._hide(("",))
        self._results.close()

    def _hide(self, prefixes: tuple[str, ...]) -> None:
        """Drop the views whose names begin with one of `prefixes`."""
        for name in [name for name in self._views if name.startswith(prefixes)]:
            self._spark.catalog.dropTempView(name)
            self._views.remove(name)


_OF_FLOATS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    SUM_FLOAT: sum_float_lists,
    COMOMENT_FLOAT: comoment_float_lists,
    FRAMED["sum_float"]: framed_sums,
    FRAMED["comoment_float"]: framed_comoments,
}


def _float_function(name: str) -> Any:
    """Return a function of lists that gives a float or floats for each, as Spark takes it."""
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import ArrayType, DoubleType

    compute = _OF_FLOATS[name]

    def function(lists: pa.Array) -> pa.Array:
        return compute(lists)

    is_framed = name in FRAMED.values()
    return arrow_udf(function, ArrayType(DoubleType()) if is_framed else DoubleType())


@contextmanager
def faults(cancellation: Cancellation | None) -> Iterator[None]:
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
        carried = carried_in(error)
        if carried is not None:
            raise carried from error
        if "spark.driver.maxResultSize" in str(error):  # 1 GB of results not received yet
            raise OutOfMemory("The result is larger than spark.driver.maxResultSize.") from error
        raise
