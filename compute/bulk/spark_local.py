"""Small steps of a dataflow on Spark: statements over its files that DuckDB computes beside it.

A job takes some tenths of a second, however little it reads. So a statement that reads less than
some bytes of files is computed in the replica's process. It is rendered for DuckDB from the same
plan, and reads the same files and tails. What it gives is put into Spark's form, so the next
statement may be computed by either.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbSession, faults
from foreshore.compute.delta.changes import change_table, input_table, state_table
from foreshore.compute.delta.closed import Closed
from foreshore.compute.delta.differentiate import TickPlan
from foreshore.compute.delta.tables import Layout, consolidate_select, row_layout
from foreshore.compute.delta.tick import layout_of
from foreshore.compute.engine import Cancellation
from foreshore.compute.render.spark_dialect import spark_form
from foreshore.errors import OutOfDisk, OutOfMemory
from foreshore.expr.columns import columns_of
from foreshore.sizes import shown
from foreshore.types import arrow_type

RESULT_BYTES = 256 << 20  # of a statement of hydration, which this process has in memory


class LocalSteps:
    """The statements of one dataflow that are computed here; of one thread at a time.

    Those that read `most_bytes` of files or more are left to Spark, and all after one that has
    taken too much memory. So are hydrations from inputs of `hydrate_bytes` or more.
    """

    def __init__(
        self,
        open: Callable[[], DuckDbSession],
        most_bytes: int,
        hydrate_bytes: int = 0,
        directories: Sequence[str] = (),
    ) -> None:
        """Make one, whose session can read inputs below `directories`."""
        self._hydrate_bytes = hydrate_bytes
        self.cancellation = Cancellation()
        self.most_bytes = most_bytes
        self._directories = tuple(f"{directory}/" for directory in directories)
        self._open = open
        self._session: DuckDbSession | None = None
        self._layouts: dict[str, Layout] = {}
        self._shown: dict[str, object] = {}  # what the views show
        self._is_possible = True

    @property
    def session(self) -> DuckDbSession:
        """Return the session, whose dialect and idioms are those of the statements."""
        if self._session is None:
            self._session = self._open()
        return self._session

    def prepare(self, plan: TickPlan) -> None:
        """Record the layouts of a plan's tables. Other forms than Spark's leave all to Spark."""
        session = self.session
        for trace in plan.traces:
            self._layouts[state_table(trace)] = layout_of(trace, session, timed=False)
            if trace.leaf is None:
                self._layouts[change_table(trace)] = layout_of(trace, session, timed=True)
        for id, columns in plan.inputs.items():
            self._layouts[input_table(id)] = row_layout(columns, session.dialect, timed=True)
        bodies = [columns_of(trace.body) for trace in plan.traces]
        every = chain.from_iterable((*bodies, *plan.inputs.values()))
        types = {arrow_type(column.type) for column in every}
        self._is_possible = all(spark_form(type) == type for type in types)

    def hydrates(self, files: Iterable[str], bytes: int) -> bool:
        """Whether a dataflow is hydrated here, whose inputs have so many bytes, in files or not."""
        little = self.takes(bytes) and bytes < self._hydrate_bytes
        return little and all(file.startswith(self._directories) for file in files)

    def takes(self, bytes: int) -> bool:
        """Whether a statement that reads so many bytes of files is computed here."""
        return self._is_possible and bytes < self.most_bytes

    def why(self, bytes: int) -> str:
        """Return why a statement that reads so many bytes of files is computed here, or not."""
        if not self._is_possible:
            return "has types that only Spark has in this form"
        if not self.most_bytes:
            return "DuckDB has had too little memory"
        less = bytes < self.most_bytes
        return f"reads {'less than ' * less}{shown(self.most_bytes)}{' or more' * (not less)}"

    def fetch(
        self,
        select: str,
        contents: Mapping[str, tuple[Sequence[str], pa.Table]],
        changes: Mapping[str, pa.Table],
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the result of `select` over contents, of these files and tails, and changes.

        Raises OutOfMemory if it exceeds `max_bytes`.
        """
        session = self.session
        for name, (paths, tail) in contents.items():
            shown = (tuple(paths), tail)
            if self._is_shown(name, shown):
                continue
            items = self._items(name)
            parts = []
            if paths:
                parts.append(f"SELECT {items} FROM {session.files(name, paths, ())}")
            if tail.num_rows or not paths:
                session.show(f"added_{name}", tail, ())
                parts.append(f"SELECT {items} FROM added_{name}")
            self._show(name, " UNION ALL ".join(parts), shown)
        for name, table in changes.items():
            if not self._is_shown(name, table):
                session.show(f"loaded_{name}", table, ())
                self._show(name, f"SELECT {self._items(name)} FROM loaded_{name}", table)
        try:
            self.cancellation.arm(session.interrupt)
            with faults():
                found = session.fetch(select, max_bytes)
            self.cancellation.check()
            return found
        except (OutOfMemory, OutOfDisk):
            if max_bytes is None:
                self.most_bytes = 0  # the step is repeated, on Spark
            raise
        finally:
            self.cancellation.disarm()

    def consolidated(
        self, name: str, paths: Sequence[str], tail: pa.Table, closed: Closed | None = None
    ) -> pa.Table:
        """Return the entries of contents, one for each row, without closed rows."""
        select = consolidate_select(name, self._layouts[name], self.session.dialect, closed)
        return self.fetch(select, {name: (paths, tail)}, {})

    def release(self) -> None:
        """Drop inputs and constants; contents and changes are shown again when they are read."""
        self.session.release()
        self._shown.clear()

    def close(self) -> None:
        """Free the session."""
        if self._session is not None:
            self._session.close()

    def _items(self, name: str) -> str:
        layout = self._layouts[name]
        columns = (*layout.rows, *layout.sums)
        return ", ".join(f"CAST({column} AS {type}) AS {column}" for column, type in columns)

    def _is_shown(self, name: str, what: object) -> bool:
        found = self._shown.get(name)
        if isinstance(what, tuple) and isinstance(found, tuple):
            return found[0] == what[0] and found[1] is what[1]
        return found is what

    def _show(self, name: str, select: str, what: object) -> None:
        self.session.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {select}")
        self._shown[name] = what
