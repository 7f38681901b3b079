"""DuckDB as an engine: single-machine and in memory.

An engine is one in-memory database. It can read files below the given directories and nothing else:
external access is off and the configuration is locked before any user's plan runs. Each dataflow
has a schema and a cursor; each evaluation has a cursor. Functions whose DuckDB version differs from
PostgreSQL's are registered once, as Arrow functions over the kernels.
"""

import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import duckdb
import pyarrow as pa

from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.bulk.session import Columns, Session
from foreshore.compute.delta.closed import Closed
from foreshore.compute.delta.tables import Layout, by_position, consolidate_select
from foreshore.compute.engine import Cancellation, check_size
from foreshore.compute.render.aggregates import COMOMENT_FLOAT, FRAMED, SUM_FLOAT, DuckDbIdioms
from foreshore.compute.render.dialect import ArrowFunction
from foreshore.compute.render.duckdb_dialect import DuckDbDialect, register_duckdb
from foreshore.compute.render.exact import comoment_float_lists, sum_float_lists
from foreshore.compute.render.framed import framed_comoments, framed_sums
from foreshore.compute.render.kernel_calls import QUERIES, SET_NUMBER, sliced
from foreshore.compute.render.kernel_errors import carried_in
from foreshore.errors import (
    NumericValueOutOfRange,
    OutOfDisk,
    OutOfMemory,
    QueryCanceled,
    StatementTooComplex,
    Unavailable,
)
from foreshore.sizes import bytes_of

logger = logging.getLogger(__name__)

warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")

PATIENCE_SECONDS = 5.0  # to wait for running work when the engine is closed
# Rows fetched at once from a streamed result, of some KB each in the worst of usual cases.
BATCH_ROWS = 1 << 14
# Contents are consolidated when this many entries were added, and as many as there were. Until then
# entries are in a tail, which is consolidated whenever this many were added.
CONSOLIDATE_AFTER = 4096
CONSOLIDATE_TAIL_AFTER = 64


class DuckDbEngine(BulkEngine):
    """An engine over one in-memory DuckDB, which spills to `scratch`.

    Spilling more than `spill_limit` fails, because the log uses the same disk.
    """

    name = "duckdb"

    def __init__(
        self,
        *,
        directories: Sequence[str] = (),
        memory_limit: str = "2GB",
        threads: int = 2,
        scratch: str | None = None,
        spill_limit: str = "16GB",
    ) -> None:
        super().__init__()
        self._made = partial(
            DuckDbEngine, directories=directories, threads=threads, spill_limit=spill_limit
        )
        self._memory, self._scratch = bytes_of(memory_limit), scratch
        self._limited: set[DuckDbEngine] = set()
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "threads": threads,
                "memory_limit": memory_limit,
                "preserve_insertion_order": False,
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "temp_directory": "" if scratch is None else scratch,
                "max_temp_directory_size": spill_limit,
                # Else its allocator keeps what a large query has freed until the next one.
                "allocator_background_threads": True,
            },
        )
        for name, function, fields in (
            (SUM_FLOAT, sum_float_lists, "x DOUBLE"),
            (COMOMENT_FLOAT, comoment_float_lists, "x DOUBLE, y DOUBLE"),
        ):
            self._connection.create_function(
                name,
                partial(_of_lists, function),
                [f"STRUCT({fields}, d BIGINT)[]"],
                "DOUBLE",
                type="arrow",
                null_handling="special",
            )
        for name, framed, fields in (
            (FRAMED["sum_float"], framed_sums, "x DOUBLE"),
            (FRAMED["comoment_float"], framed_comoments, "x DOUBLE, y DOUBLE"),
        ):
            self._connection.create_function(
                name,
                partial(_of_lists, framed),
                [f"STRUCT(n BIGINT, {fields}, lo BIGINT, hi BIGINT)[]"],
                "DOUBLE[]",
                type="arrow",
                null_handling="special",
            )
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        reached = dict.fromkeys([*directories, *map(_literally, directories)])
        names = ", ".join(map(DuckDbDialect.quote, reached))
        self._connection.execute(f"SET GLOBAL allowed_directories = [{names}]")
        self._connection.execute("SET GLOBAL enable_external_access = false")
        self._connection.execute("SET GLOBAL lock_configuration = true")
        self._functions = Functions(self._connection)

    @contextmanager
    def limited(self, memory: int) -> "Iterator[DuckDbEngine]":
        """Yield a database of its own for one query, some 15 ms of the processor.

        What a query takes is not known in a database that others share.
        """
        with ExitStack() as stack:
            scratch = self._scratch
            if scratch is not None:
                Path(scratch).mkdir(parents=True, exist_ok=True)
                scratch = stack.enter_context(TemporaryDirectory(dir=scratch, prefix="query"))
            engine = self._made(memory_limit=f"{min(memory, self._memory)}B", scratch=scratch)
            stack.callback(engine.close)
            with self._lock:
                self._limited.add(engine)
            try:
                yield engine
            finally:
                with self._lock:
                    self._limited.discard(engine)

    def cancel(self) -> None:
        """Stop all running evaluations."""
        super().cancel()
        with self._lock:
            limited = list(self._limited)
        for engine in limited:
            engine.cancel()

    def close(self) -> None:
        """Stop running work and free the database, at the latest when the process ends."""
        self.cancel()
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._connection.close()
                return
            except duckdb.ResourceInUseException:  # a thread is still using it
                if time.monotonic() > give_up:
                    logger.warning("DuckDB is busy and is left to the end of the process")
                    return
                time.sleep(0.01)

    @contextmanager
    def _session(self, number: int, cancellation: Cancellation) -> Iterator[Session]:
        """Yield a session on a cursor that `cancellation` interrupts."""
        cursor = self._connection.cursor()
        try:
            with (
                QUERIES.running(cancellation.check) as query,
                self._cancellable(cancellation, cursor.interrupt),
                faults(),
            ):
                yield DuckDbSession(cursor, self._functions, query)
        finally:
            cursor.close()

    def session(self) -> "DuckDbSession":
        """Return a session on a cursor of its own, which the caller closes."""
        return DuckDbSession(self._connection.cursor(), self._functions)

    def _store(self, number: int) -> "DuckDbStore":
        return DuckDbStore(self._connection.cursor(), self._functions, f"dataflow{number}")


def _of_lists(kernel: Callable[[pa.Array], pa.Array], lists: pa.Array) -> pa.Array:
    """Return what a kernel makes of lists, a slice of them at a time."""
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    return sliced(kernel, (lists,))


class Functions:
    """The Arrow functions of the database, which all its cursors share."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._lock = Lock()

    def register(self, functions: Sequence[ArrowFunction]) -> None:
        """Register those of `functions` that are not registered yet."""
        with self._lock:
            register_duckdb(self._connection, functions)


class DuckDbSession(Session):
    """Statements through a cursor. External tables have names local to the cursor."""

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, functions: Functions, query: int | None = None
    ) -> None:
        """`query` is the number of the query that the session runs, if it runs one."""
        super().__init__(DuckDbDialect(), DuckDbIdioms())
        self._query = query
        self._cursor = cursor
        self._functions = functions
        self._inputs: set[str] = set()

    def show(self, name: str, table: pa.Table, columns: Columns) -> None:
        """Register an Arrow table under `name`; it is read in place."""
        self._cursor.register(name, table)
        self._inputs.add(name)

    def files(self, name: str, paths: Sequence[str], columns: Columns) -> str:
        """Return a FROM item for Parquet files, which describe their own columns.

        Statistics of a column omit NaNs, which are greater than their maximum. A directory called
        `k=7` is not a partition column.
        """
        names = ", ".join(self.dialect.quote(_literally(path)) for path in paths)
        return f"read_parquet([{names}], can_have_nan => true, hive_partitioning => false)"

    def release(self) -> None:
        """Drop inputs and constants."""
        for name in self._inputs:
            self._cursor.unregister(name)
        self._inputs.clear()

    def register(self, functions: Sequence[ArrowFunction]) -> None:
        """Register `functions`, and tell them by their arguments which query calls them."""
        self._functions.register(functions)
        if self._query is not None:
            self._cursor.execute(SET_NUMBER.format(self._query))
            self._query = None

    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return the result of `select`."""
        if max_bytes is None:
            return self.execute(select).to_arrow_table()
        self.register_used()
        return pa.concat_tables(_stream(self._cursor, select, max_bytes))

    def stream(self, select: str, max_bytes: int | None = None) -> Iterator[pa.Table]:
        """Yield what `select` gives in small parts, however much that is."""
        self.register_used()
        return _stream(self._cursor, select, None)

    def interrupt(self) -> None:
        """Make the statement that runs raise QueryCanceled. Any thread may call it."""
        self._cursor.interrupt()

    def close(self) -> None:
        """Close the cursor."""
        self._cursor.close()

    def execute(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Run a rendered statement after registering the functions that it may call."""
        self.register_used()
        return self._cursor.execute(sql)


class DuckDbStore(DuckDbSession):
    """The tables of one dataflow, in a schema and with a cursor of their own."""

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, functions: Functions, schema: str
    ) -> None:
        super().__init__(cursor, functions)
        self._sizes: dict[str, tuple[int, int]] = {}  # consolidated entries, and added since
        self._closed: dict[str, Closed] = {}  # rows of tables that are not read again
        self._schema = schema
        self._layouts: dict[str, Layout] = {}
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"USE {schema}")

    def batch_sizing(self) -> BatchSizing:
        """Return the batch sizing of a dataflow."""
        return BatchSizing(16, seconds=0.25)

    def hold(self, name: str, layout: Layout, select: str) -> None:
        """Create the contents `name` from `select`."""
        self._layouts[name] = layout
        main, tail = _main(name), _tail(name)
        self._create(main, layout)
        self._create(tail, layout)
        self._sizes[main] = (self._change(f"INSERT INTO {main} {select}"), 0)
        self._sizes[tail] = (0, 0)
        self._cursor.execute(f"CREATE VIEW {name} AS FROM {main} UNION ALL FROM {tail}")

    def forget(self, name: str) -> None:
        """Drop the contents `name`."""
        self._cursor.execute(f"DROP VIEW {name}")
        for table in (_main(name), _tail(name)):
            self._cursor.execute(f"DROP TABLE {table}")

    def prepare(self, name: str, layout: Layout) -> None:
        """Create the table of changes `name`."""
        self._layouts[name] = layout
        self._create(name, layout)

    def begin(self) -> None:
        """Begin a step."""
        self._cursor.execute("BEGIN TRANSACTION")

    def load(self, name: str, updates: pa.Table) -> None:
        """Set the changes `name` to `updates`."""
        self._cursor.register("loaded", by_position(updates))
        self._change(f"INSERT INTO {name} SELECT * FROM loaded")
        self._cursor.unregister("loaded")

    def fill(self, name: str, select: str) -> bool:
        """Set the changes `name` to the result of `select`."""
        return self._change(f"INSERT INTO {name} {select}") > 0

    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return the result of `select`."""
        with faults():
            return super().fetch(select, max_bytes)

    def absorb(self, contents: str, changes: str) -> None:
        """Add changes to contents, and consolidate the entries now and then.

        A row that changes repeatedly leaves entries that cancel out. A join processes them all, and
        a join of such rows with each other processes their product. So recent entries are
        consolidated often, and only their result is added to the rest, which may be large.
        """
        main, tail, layout = _main(contents), _tail(contents), self._layouts[contents]
        self._append(tail, changes, layout)
        if self._sizes[tail][1] <= CONSOLIDATE_TAIL_AFTER:
            return
        self._consolidate(tail, layout)
        if self._sizes[tail][0] <= CONSOLIDATE_AFTER:
            return
        self._append(main, tail, layout)
        self._change(f"DELETE FROM {tail}")
        self._sizes[tail] = (0, 0)
        size, since = self._sizes[main]
        if since > size:
            self._consolidate(main, layout)

    def let_go(self, contents: str, closed: Closed) -> None:
        """Drop the closed rows of contents when their tables are consolidated."""
        self._closed[_main(contents)] = self._closed[_tail(contents)] = closed

    def _append(self, table: str, entries: str, layout: Layout) -> None:
        names = ", ".join(layout.names)
        count = self._change(f"INSERT INTO {table} SELECT {names} FROM {entries}")
        size, since = self._sizes[table]
        self._sizes[table] = (size, since + count)

    def _consolidate(self, table: str, layout: Layout) -> None:
        """Consolidate the entries of a table."""
        select = consolidate_select(table, layout, self.dialect, self._closed.get(table))
        self._create("consolidated", layout)
        count = self._change(f"INSERT INTO consolidated {select}")
        self._cursor.execute(f"DROP TABLE {table}")
        self._cursor.execute(f"ALTER TABLE consolidated RENAME TO {table}")
        self._sizes[table] = (count, 0)

    def clear(self, changed: Sequence[str]) -> None:
        """Empty tables of changes."""
        for name in changed:
            self._change(f"DELETE FROM {name}")

    def commit(self) -> None:
        """End the step."""
        self._cursor.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the step."""
        self._cursor.execute("ROLLBACK")

    def close(self) -> None:
        """Drop the schema."""
        self._cursor.execute("USE main")
        self._cursor.execute(f"DROP SCHEMA {self._schema} CASCADE")
        self._cursor.close()

    def _change(self, sql: str) -> int:
        """Insert or delete rows; return how many."""
        with faults():
            row = self.execute(sql).fetchone()
        assert row is not None
        return int(row[0])

    def _create(self, name: str, layout: Layout) -> None:
        columns = ", ".join(f"{column} {type}" for column, type in (*layout.rows, *layout.sums))
        self._cursor.execute(f"CREATE TABLE {name} ({columns})")


def _literally(path: str) -> str:
    """Return the pattern that matches this path only, because DuckDB treats paths as patterns."""
    return re.sub(r"[*?[]", r"[\g<0>]", path)


def _main(contents: str) -> str:
    """Return the table with most of the contents, which are a view of it and a tail."""
    return f"{contents}_main"


def _tail(contents: str) -> str:
    """Return the table of the entries recently added to the contents."""
    return f"{contents}_tail"


def _stream(
    cursor: duckdb.DuckDBPyConnection, select: str, max_bytes: int | None
) -> Iterator[pa.Table]:
    """Yield the result of `select` in parts, at least one; raises OutOfMemory beyond `max_bytes`.

    A streamed result is computed while it is read. A table would exist twice before its size is
    known, and DuckDB's memory limit does not count it.
    """
    size = count = 0
    with cursor.sql(select).to_arrow_reader(BATCH_ROWS) as reader:
        try:
            for batch in reader:
                count += 1
                size += batch.nbytes
                if max_bytes is not None:
                    check_size(size, max_bytes)
                yield pa.Table.from_batches([batch])
        except OSError as error:  # Arrow's streams report errors after the first rows this way
            kind = _STREAMED.get(str(error).partition(":")[0])
            if kind is None:
                raise
            raise kind(str(error)) from error
        if not count:
            yield reader.schema.empty_table()


_STREAMED = {
    "INTERRUPT Error": duckdb.InterruptException,
    "IO Error": duckdb.IOException,
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "Invalid Input Error": duckdb.InvalidInputException,
    "Out of Range Error": duckdb.OutOfRangeException,
    "Conversion Error": duckdb.ConversionException,
}


@contextmanager
def faults() -> Iterator[None]:
    """Translate DuckDB's exceptions."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise QueryCanceled from error
    except duckdb.OutOfMemoryException as error:
        raise OutOfMemory(str(error).partition("\n")[0]) from error
    except duckdb.IOException as error:
        if "No space left on device" in str(error):
            raise OutOfDisk("what does not fit in memory") from error
        if "Input/output error" in str(error):
            raise Unavailable(str(error).partition("\n")[0], sqlstate="58030") from error
        raise
    except duckdb.InvalidInputException as error:
        carried = carried_in(error)
        if carried is not None:
            raise carried from error
        if "MemoryError: " not in str(error):  # of a kernel
            raise
        raise OutOfMemory("A function needs more memory than there is for the query.") from error
    except (duckdb.ParserException, duckdb.BinderException) as error:
        if "depth" not in str(error):
            raise
        raise StatementTooComplex("the statement is nested too deeply") from error
    except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
        raise NumericValueOutOfRange("value out of range") from error
