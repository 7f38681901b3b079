"""DuckDB as an engine: everything on one machine, in memory.

An engine is one in-memory database. It may read files below the directories it is given and nothing
else: external access is off and the configuration locked before any plan of a user's is run. Each
dataflow has a schema and a cursor of its own in it; each evaluation a cursor. Functions that DuckDB
does not have as PostgreSQL means them are registered once, as Arrow functions over our kernels.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import Lock

import duckdb
import pyarrow as pa

from foreshore.compute.bulk.aggregates import SUM_FLOAT, DuckDbIdioms, Idioms
from foreshore.compute.bulk.dialect import Dialect
from foreshore.compute.bulk.duckdb_dialect import DuckDbDialect, register_duckdb
from foreshore.compute.bulk.evaluate import check_result, plans_of, raise_least
from foreshore.compute.bulk.exact import sum_float_lists
from foreshore.compute.bulk.render import Renderer
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
from foreshore.errors import NumericValueOutOfRange, QueryCanceled, StatementTooComplex, Unavailable
from foreshore.expr.ir import Constant, Relation, columns_of, sources_of
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import DIFF, TIME, update_schema

warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


# Contents are added up when this many entries have come to them, and as many as they had.
CONSOLIDATE_AFTER = 4096


class DuckDbEngine:
    """An engine over one in-memory DuckDB, which spills what exceeds its memory to `scratch`."""

    def __init__(
        self,
        *,
        directories: Sequence[str] = (),
        memory_limit: str = "2GB",
        threads: int = 2,
        scratch: str | None = None,
    ) -> None:
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
            },
        )
        self._connection.create_function(
            SUM_FLOAT,
            sum_float_lists,
            ["STRUCT(x DOUBLE, d BIGINT)[]"],
            "DOUBLE",
            type="arrow",
            null_handling="special",
        )
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        names = ", ".join(literal(directory) for directory in directories)
        self._connection.execute(f"SET GLOBAL allowed_directories = [{names}]")
        self._connection.execute("SET GLOBAL enable_external_access = false")
        self._connection.execute("SET GLOBAL lock_configuration = true")
        self._functions = Functions(self._connection)
        self._schemas = count()
        self._lock = Lock()
        self._running: set[Cancellation] = set()

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow, not yet hydrated."""
        plan = differentiate(plans_of(description.relation).all)
        missing = set(plan.inputs) - set(schemas)
        assert not missing, f"no schema of {missing}"
        cursor = self._connection.cursor()
        store = DuckDbStore(self._functions, cursor, f"dataflow{next(self._schemas)}")
        return TickDataflow(plan, store, description.as_of)

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        plans = plans_of(relation)
        with self._cursor(cancellation) as cursor, _faults():
            if plans.errors is not None:
                raise_least(self._run(cursor, plans.errors, inputs, as_of))
            return check_result(relation, self._run(cursor, plans.rows, inputs, as_of))

    def cancel(self) -> None:
        """Stop all evaluations that run now."""
        with self._lock:
            running = list(self._running)
        for cancellation in running:
            cancellation.cancel()

    def describe(self, relation: Relation) -> str:
        """Return how the engine maintains `relation`."""
        return describe_plan("duckdb", differentiate(plans_of(relation).all))

    def close(self) -> None:
        """Free the database."""
        self._connection.close()

    @contextmanager
    def _cursor(self, cancellation: Cancellation | None) -> Iterator[duckdb.DuckDBPyConnection]:
        cancellation = cancellation or Cancellation()
        cursor = self._connection.cursor()
        with self._lock:
            self._running.add(cancellation)
        try:
            cancellation.arm(cursor.interrupt)
            yield cursor
            if cancellation.cancelled:
                raise QueryCanceled
        finally:
            cancellation.disarm()
            with self._lock:
                self._running.discard(cancellation)
            cursor.close()

    def _run(
        self,
        cursor: duckdb.DuckDBPyConnection,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
    ) -> pa.Table:
        needed = {id: inputs[id] for id in sources_of(relation)}
        sources = register_inputs(cursor, needed, as_of)
        dialect = DuckDbDialect()
        constants = partial(register_constant, cursor)
        renderer = Renderer(dialect, DuckDbIdioms(), sources, constant=constants)
        select = renderer.consolidated(relation)
        self._functions.register(dialect)
        result = cursor.execute(select).to_arrow_table()
        return conform(result, result_schema(columns_of(relation)))


class Functions:
    """The Arrow functions of the database, which all its cursors share."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._lock = Lock()

    def register(self, dialect: Dialect) -> None:
        """Make callable what the statements of `dialect` call."""
        with self._lock:
            register_duckdb(self._connection, list(dialect.used.values()))


class DuckDbStore:
    """The tables of one dataflow: a schema of their own, used through a cursor of their own."""

    points = 16

    def __init__(
        self,
        functions: "Functions",
        cursor: duckdb.DuckDBPyConnection,
        schema: str,
    ) -> None:
        self.dialect: Dialect = DuckDbDialect()
        self.idioms: Idioms = DuckDbIdioms()
        self._functions = functions
        self._cursor = cursor
        self._inputs: list[str] = []  # what is registered while hydrating
        self._registered = 0
        self._sizes: dict[str, tuple[int, int]] = {}  # entries when added up, and come since
        self._schema = schema
        self._layouts: dict[str, Layout] = {}
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"USE {schema}")

    def sources(
        self,
        inputs: Mapping[GlobalId, Input],
        columns: Mapping[GlobalId, Sequence[ColumnType]],
        as_of: int,
    ) -> Mapping[GlobalId, str]:
        """Return a FROM item for each input."""
        self._inputs = [f"tail_{id}" for id in columns]
        return register_inputs(self._cursor, {id: inputs[id] for id in columns}, as_of)

    def constant(self, constant: Constant) -> str:
        """Return a FROM item for a constant."""
        name = register_constant(self._cursor, constant)
        self._inputs.append(name)
        return name

    def hold(self, name: str, layout: Layout, select: str) -> None:
        """Make the contents `name` what `select` gives."""
        self._layouts[name] = layout
        self._create(name, layout)
        with _faults():
            row = self._execute(f"INSERT INTO {name} {select}").fetchone()
        assert row is not None
        self._sizes[name] = (int(row[0]), 0)

    def release(self) -> None:
        """Let go of inputs and constants."""
        for name in self._inputs:
            self._cursor.unregister(name)
        self._inputs = []

    def forget(self, name: str) -> None:
        """Drop the contents `name`."""
        self._cursor.execute(f"DROP TABLE {name}")

    def prepare(self, name: str, layout: Layout) -> None:
        """Make the table of changes `name`."""
        self._layouts[name] = layout
        self._create(name, layout)

    def begin(self) -> None:
        """Begin a step."""
        self._cursor.execute("BEGIN TRANSACTION")

    def load(self, name: str, updates: pa.Table) -> None:
        """Make the changes `name` those `updates`."""
        self._cursor.register("loaded", by_position(updates))
        self._cursor.execute(f"INSERT INTO {name} SELECT * FROM loaded")
        self._cursor.unregister("loaded")

    def fill(self, name: str, select: str) -> bool:
        """Make the changes `name` what `select` gives."""
        with _faults():
            row = self._execute(f"INSERT INTO {name} {select}").fetchone()
        assert row is not None
        return bool(row[0])

    def read(self, select: str, schema: pa.Schema) -> pa.Table:
        """Return what `select` gives."""
        with _faults():
            return conform(self._execute(select).to_arrow_table(), schema)

    def absorb(self, contents: str, changes: str) -> None:
        """Add changes to contents, and add up the entries when as many have come as there were."""
        names = ", ".join(self._layouts[contents].names)
        row = self._cursor.execute(
            f"INSERT INTO {contents} SELECT {names} FROM {changes}"
        ).fetchone()
        assert row is not None
        size, since = self._sizes.get(contents, (0, 0))
        since += row[0]
        if since > max(CONSOLIDATE_AFTER, size):
            size, since = self._consolidate(contents), 0
        self._sizes[contents] = (size, since)

    def _consolidate(self, name: str) -> int:
        """Add up the entries of contents; returns how many are left."""
        layout = self._layouts[name]
        select = consolidate_select(name, layout)
        self._create("consolidated", layout)
        row = self._cursor.execute(f"INSERT INTO consolidated {select}").fetchone()
        self._cursor.execute(f"DROP TABLE {name}")
        self._cursor.execute(f"ALTER TABLE consolidated RENAME TO {name}")
        assert row is not None
        return int(row[0])

    def clear(self, changed: Sequence[str]) -> None:
        """Empty tables of changes."""
        for name in changed:
            self._cursor.execute(f"DELETE FROM {name}")

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

    def _execute(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Run a rendered statement, with the functions registered that it may call."""
        if len(self.dialect.used) > self._registered:
            self._functions.register(self.dialect)
            self._registered = len(self.dialect.used)
        return self._cursor.execute(sql)

    def _create(self, name: str, layout: Layout) -> None:
        columns = ", ".join(f"{column} {type}" for column, type in (*layout.rows, *layout.sums))
        self._cursor.execute(f"CREATE TABLE {name} ({columns})")


_constants = count()


def register_constant(cursor: duckdb.DuckDBPyConnection, constant: Constant) -> str:
    """Return a FROM item for a constant: c0, ..., d."""
    table = constant_table(constant)
    name = f"constant{next(_constants)}"
    cursor.register(name, table)
    return name


def register_inputs(
    cursor: duckdb.DuckDBPyConnection, inputs: Mapping[GlobalId, Input], as_of: int
) -> Mapping[GlobalId, str]:
    """Return FROM items for the contents of `inputs` as of a time: c0, ..., d."""
    sources = {}
    for id, input in inputs.items():
        names = input.schema.names
        items = [f"{identifier(name)} AS c{i}" for i, name in enumerate(names)]
        at = f"WHERE {identifier(TIME)} <= {as_of}"
        selects = []
        if input.files:
            files = ", ".join(map(literal, input.files))
            columns = ", ".join([*items, f"{identifier(DIFF)} AS d"])
            selects.append(f"SELECT {columns} FROM read_parquet([{files}]) {at}")
        tail = [table for table in input.tail if table.num_rows]
        if tail or not selects:
            view = f"tail_{id}"
            tables = [by_position(table) for table in tail]
            empty = by_position(update_schema(input.schema).empty_table())
            cursor.register(view, pa.concat_tables(tables) if tables else empty)
            columns = ", ".join([*(f"c{i}" for i in range(len(names))), "d"])
            selects.append(f"SELECT {columns} FROM {view} WHERE t <= {as_of}")
        sources[id] = f"({' UNION ALL '.join(selects)})"
    return sources


def literal(text: str) -> str:
    """Return a string literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _faults() -> Iterator[None]:
    """Make DuckDB's exceptions ours."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise QueryCanceled from error
    except duckdb.OutOfMemoryException as error:
        raise Unavailable("out of memory", sqlstate="53200", detail=str(error)) from error
    except (duckdb.ParserException, duckdb.BinderException) as error:
        if "depth" not in str(error):
            raise
        raise StatementTooComplex("the statement is nested too deeply") from error
    except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
        raise NumericValueOutOfRange("value out of range") from error
