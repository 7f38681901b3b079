"""The context of a statement: what one run of it may use, and what it may do to its client.

The session makes a context for each run; a statement that is tried again gets a new one, with a new
transaction. Only statements about the session itself, such as COMMIT or DECLARE, get the session
beside it.

Plans ask the context for environment values, such as now() or current_user: an `Environment` scalar
is only a name, whose value is looked up when the statement runs and needs it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from foreshore.adapter.statement.roles import require_visible
from foreshore.adapter.transaction.violations import Viewer
from foreshore.catalog.names import IMPLICIT_SCHEMAS, TEMPORARY
from foreshore.catalog.sequence_numbers import generation_of
from foreshore.errors import ActiveSqlTransaction, InternalError, ReadOnlySqlTransaction
from foreshore.expr.scalars import Replace
from foreshore.ids import GlobalId, temporary_schema
from foreshore.isolation import Isolation
from foreshore.setting_kinds import boolean
from foreshore.settings import VERSION, split_names
from foreshore.sql.rewrite.bind_parameters import parameter_bindings
from foreshore.types import Datum
from foreshore.update import Timestamp

if TYPE_CHECKING:
    import pyarrow as pa

    from foreshore.adapter.plans.prepared import Prepared
    from foreshore.adapter.services.engines import Engines
    from foreshore.adapter.services.feeds import Feeds
    from foreshore.adapter.services.names import Names
    from foreshore.adapter.services.process import Process
    from foreshore.adapter.services.tables import Tables
    from foreshore.adapter.services.times import Times
    from foreshore.adapter.services.views import Views
    from foreshore.adapter.statement.interrupts import Interrupts
    from foreshore.adapter.statement.news import Notices
    from foreshore.adapter.statement.planner import Planner
    from foreshore.adapter.statement.roles import SessionRoles
    from foreshore.adapter.statement.sessions import Peer
    from foreshore.adapter.statement.staging import Staging
    from foreshore.adapter.statement.trace import Trace
    from foreshore.adapter.transaction.transaction import Transaction
    from foreshore.catalog.item import Role
    from foreshore.catalog.transaction import Transaction as CatalogTransaction
    from foreshore.session_variables import Variables
    from foreshore.storage.ingest.messages import Discovered


ONCE: Sequence[Sequence[Datum]] = ((),)  # one execution without arguments


class StatementContext(Struct, frozen=True, eq=False):
    """One run of a statement; `alone` says that its transaction ends with it.

    A struct is made in a tenth of the time that a frozen dataclass takes.
    """

    prepared: "Prepared"
    args: Sequence[Datum]
    many: Sequence[Sequence[Datum]]  # of all executions that run as one; `args` are of the first
    alone: bool
    transaction: "Transaction"
    planner: "Planner"  # the catalog as the transaction sees it
    names: "Names"
    times: "Times"
    tables: "Tables"
    views: "Views"
    engines: "Engines"
    feeds: "Feeds"
    process: "Process"
    sessions: "Mapping[int, Peer]"  # all of the environment, by pid
    session: "Peer"
    pid: int
    roles: "SessionRoles"
    variables: "Variables"
    lasting_effects: set[str]  # the functions called that did something no transaction undoes
    interrupts: "Interrupts"
    notice: "Notices"
    again: bool = False  # it runs again after a conflict
    reads_newest: bool = False  # at any isolation, unless the transaction has chosen its time
    trace: "Trace | None" = None  # of EXPLAIN ANALYZE
    # Of a statement after a WITH that changes rows: what its parts have returned, and what they and
    # the statement will stage at its end.
    given: "Mapping[GlobalId, pa.Table]" = {}
    staging: "list[Staging] | None" = None
    # Of CREATE SOURCE: what its external system has.
    discovered: "Discovered | None" = None

    def ran(self, how: str) -> None:
        """Note how rows were found, if anybody wants to know."""
        if self.trace is not None:
            self.trace.ran.append(how)

    @property
    def role(self) -> "Role":
        """The current role, whose rights count."""
        return self.roles.current

    @property
    def isolation(self) -> Isolation:
        """How the statement's reads choose their time."""
        if self.reads_newest:
            return "strict serializable"
        return self.variables.settings.isolation

    @property
    def read_only(self) -> bool:
        """Whether the transaction may write to temporary tables alone."""
        return self.variables.settings.is_read_only

    @property
    def database(self) -> str:
        """The session's database."""
        return self.variables["database"]

    @property
    def cluster(self) -> str:
        """The name of the cluster that answers the session's queries."""
        return self.variables["cluster"]

    @property
    def time_zone(self) -> str:
        """The session's time zone."""
        return self.variables["timezone"]

    @property
    def viewer(self) -> Viewer:
        """Who gets the statement's errors."""
        return Viewer(self.time_zone, self.role)

    @property
    def lock_timeout_ms(self) -> int:
        """How long to wait for a lock; 0 is without end."""
        return self.variables.settings.lock_timeout_ms

    @property
    def now(self) -> Timestamp:
        """The value of mz_now() in a statement that reads nothing."""
        time = self.transaction.time
        return self.times.oracle.read_ts() if time is None else time

    @property
    def temporary_schema(self) -> str:
        """The name, and the id, of the schema of the session's temporary objects."""
        return temporary_schema(self.pid)

    def of(self, args: Sequence[Datum], prepared: "Prepared | None" = None) -> "StatementContext":
        """Return the context of one execution, perhaps of another statement."""
        return replace(self, args=args, many=(args,), prepared=prepared or self.prepared)

    def reading_newest(self) -> "StatementContext":
        """Return the context of a statement that writes or locks."""
        return replace(self, reads_newest=True)

    def require_writable(self, what: str) -> None:
        """Raise if the transaction is read-only."""
        if self.read_only:
            raise ReadOnlySqlTransaction(f"cannot execute {what} in a read-only transaction")

    def check_stays_read_only(self, name: str, values: tuple[str, ...] | None) -> None:
        """Raise if setting a variable would let a transaction write that was to read only.

        It may be set before the transaction's first query; None is the default.
        """
        if name.lower() != "transaction_read_only" or not self.transaction.settled:
            return
        was_read_only = self.variables[name.lower()] == "on"
        value = "off" if values is None else boolean(name, "".join(values))
        if was_read_only and value == "off":
            raise ActiveSqlTransaction("transaction read-write mode must be set before any query")

    def catalog_change(self) -> "CatalogTransaction":
        """Return the transaction's change of the catalog, a new one if there is none."""
        change = self.transaction.catalog
        if change is None:
            change = self.names.catalog.transaction()
            change.user = self.variables["session_authorization"]
            self.transaction.stage_catalog(change)
        return change

    def session_value(self, time: Timestamp) -> Callable[[str], Datum]:
        """Return a function from names in `Environment` scalars to their values, at `time`."""
        return partial(self._session_value, time)

    def bindings(self, time: Timestamp) -> Replace:
        """Return what replaces parameters and session values in a plan, as of `time`."""
        return parameter_bindings(self.args, self.session_value(time))

    def _session_value(self, time: Timestamp, name: str) -> Datum:
        kind, *details = name.split(":")
        match kind:
            case "now":
                return self.transaction.started
            case "statement_timestamp":
                # A transaction that the statement begins is a little later than its arrival.
                return max(self.session.activity.arrived_at, self.transaction.started)
            case "clock_timestamp":
                return self.times.clock.now() * 1000
            case "mz_now":
                return time
            case "current_user":
                return self.role.name
            case "session_user":
                return self.variables["session_authorization"]
            case "current_database":
                return self.database
            case "current_schema":
                return next(iter(self._explicit_path()), None)
            case "current_schemas" if details == ["false"]:
                return self._explicit_path()
            case "current_schemas":
                # mz_catalog is searched too, but tools list all that is visible beside pg_catalog
                named = split_names(self.variables["search_path"])
                hidden = () if "mz_catalog" in named else ("mz_catalog",)
                return tuple(each for each in self.planner.search_path() if each not in hidden)
            case "mz_environment_id":
                return self.process.environment_id
            case "pg_backend_pid":
                return self.pid
            case "pg_postmaster_start_time":
                return self.process.started
            case "pg_my_temp_schema":
                schema = self.planner.state.get(self.temporary_schema)
                return schema.oid if schema is not None else 0
            case "pg_advisory_unlock_all":
                self.tables.advisory.release_session(self.pid)
                return ""
            case "pg_listening_channels":
                return tuple(each.name for each in self.session.news.inbox.channels)
            case "pg_notification_queue_usage":
                return self.process.channels.usage()
            case "version":
                return VERSION
            case "mz_version":
                return self.variables["mz_version"]
            case "sequence":
                return self._of_sequence(*details)
            case "current_of":
                id, column, *cursor = details
                portals = self.session.portals
                called = self.planner.reader().state.item(id).name
                return portals.current(":".join(cursor), GlobalId(id), called, int(column))
            case "current_setting_or_null" | "current_setting":
                variable = ":".join(details)
                require_visible(self.planner.state, self.role, variable)
                if kind == "current_setting":
                    return self.variables.show(variable)
                return self.variables.show_if_known(variable)
            case _:
                raise InternalError(f"session value {name} is not known")

    def _explicit_path(self) -> tuple[str, ...]:
        """Return the schemas that are searched because the setting says so."""
        named = split_names(self.variables["search_path"])
        hidden = {schema for schema in IMPLICIT_SCHEMAS if schema not in named}
        if TEMPORARY not in named:
            hidden.add(self.temporary_schema)
        return tuple(each for each in self.planner.search_path() if each not in hidden)

    def _of_sequence(self, id: str, column: str) -> Datum:
        """Return a column of the row that a sequence is to those who read it."""
        item = self.planner.reader().state.item(id)
        position = self.tables.sequences.position(generation_of(item), item.name)
        return {"last_value": position.last, "log_cnt": 0, "is_called": position.called}[column]
