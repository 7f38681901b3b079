"""The context of a statement: what one run of it may use, and what it may do to its client.

The session makes a context for each run; a statement that is tried again gets a new one, with a new
transaction. Only statements about the session itself, such as COMMIT or DECLARE, get the session
beside it.

Plans ask the context for environment values, such as now() or current_user: an `Environment` scalar
is only a name, whose value is looked up when the statement runs and needs it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from foreshore.adapter.read.timestamp_selection import Isolation, isolation_of
from foreshore.catalog.names import TEMPORARY
from foreshore.catalog.sequence_numbers import generation_of
from foreshore.errors import ReadOnlySqlTransaction
from foreshore.ids import temporary_schema
from foreshore.settings import BOUNDED_STALENESS, VERSION, milliseconds, split_names
from foreshore.sql.rewrite.bind_parameters import Replace, parameter_bindings
from foreshore.types import Datum
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator
    from foreshore.adapter.read.result import RowSource
    from foreshore.adapter.session.activity import Interrupts
    from foreshore.adapter.session.planner import SessionPlanner
    from foreshore.adapter.session.prepared import Prepared
    from foreshore.adapter.session.session import Session
    from foreshore.adapter.session.variables import Variables
    from foreshore.adapter.transaction.transaction import Transaction
    from foreshore.adapter.write.nextval import LastValues
    from foreshore.catalog.item import Role
    from foreshore.catalog.transaction import Transaction as CatalogTransaction


_IMPLICIT = ("mz_catalog", "pg_catalog")
_NAMES = frozenset(
    "now mz_now current_user session_user current_database current_schema current_schemas"
    " current_schemas:true current_schemas:false pg_backend_pid pg_my_temp_schema"
    " pg_advisory_unlock_all"
    " version mz_version".split()
)


class Notify(Protocol):
    """Sends the client a notice."""

    def __call__(
        self,
        message: str,
        *,
        now: bool = False,
        severity: str = "NOTICE",
        sqlstate: str = "00000",
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Send it with the next answer, or at once if `now`."""


class StatementContext(Struct, frozen=True, eq=False):
    """One run of a statement; `alone` says that its transaction ends with it.

    A struct is made in a tenth of the time that a frozen dataclass takes.
    """

    prepared: "Prepared"
    args: Sequence[Datum]
    alone: bool
    transaction: "Transaction"
    planner: "SessionPlanner"  # the catalog as the transaction sees it
    coordinator: "Coordinator"
    sessions: "Mapping[int, Session]"  # all of the environment, by pid
    pid: int
    role: "Role"
    variables: "Variables"
    last_values: "LastValues"
    lasting_effects: set[str]  # the functions called that did something no transaction undoes
    met_alter: bool  # the transaction was tried again because of ALTER TABLE
    interrupts: "Interrupts"
    notice: Notify
    close_at_end: "Callable[[RowSource], None]"  # of the transaction
    reads_newest: bool = False  # at any isolation, unless the transaction has chosen its time

    @property
    def isolation(self) -> Isolation:
        """How the statement's reads choose their time."""
        if self.reads_newest:
            return "strict serializable"
        return isolation_of(self.variables["transaction_isolation"])

    @property
    def read_only(self) -> bool:
        """Whether the transaction may write to temporary tables alone."""
        isolation = self.variables["transaction_isolation"]
        return self.variables["transaction_read_only"] == "on" or isolation.startswith(
            BOUNDED_STALENESS
        )

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
    def lock_timeout_ms(self) -> int:
        """How long to wait for a lock; 0 is without end."""
        return milliseconds(self.variables["lock_timeout"]) or 0

    @property
    def now(self) -> Timestamp:
        """The value of mz_now() in a statement that reads nothing."""
        time = self.transaction.time
        return self.coordinator.oracle.read_ts() if time is None else time

    @property
    def temporary_schema(self) -> str:
        """The name, and the id, of the schema of the session's temporary objects."""
        return temporary_schema(self.pid)

    def reading_newest(self) -> "StatementContext":
        """Return the context of a statement that writes or locks."""
        return replace(self, reads_newest=True)

    def require_writable(self, what: str) -> None:
        """Raise if the transaction is read-only."""
        if self.read_only:
            raise ReadOnlySqlTransaction(f"cannot execute {what} in a read-only transaction")

    def catalog_change(self) -> "CatalogTransaction":
        """Return the transaction's change of the catalog, a new one if there is none."""
        change = self.transaction.catalog
        if change is None:
            change = self.coordinator.catalog.transaction()
            self.transaction.stage_catalog(change)
        return change

    def environment_values(self, time: Timestamp) -> Mapping[str, Callable[[], Datum]]:
        """Return the environment values that plans may ask for at `time`, each as a function."""
        return _EnvironmentValues(self, time)

    def bindings(self, time: Timestamp) -> Replace:
        """Return what replaces parameters and environment values in a plan, as of `time`."""
        return parameter_bindings(self.args, self.environment_values(time))


class _EnvironmentValues(Mapping[str, Callable[[], Datum]]):
    """What plans may ask of the environment, looked up by name."""

    def __init__(self, context: StatementContext, time: int) -> None:
        self._context = context
        self._time = time

    def __getitem__(self, name: str) -> Callable[[], Datum]:
        return lambda: self._value(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in _NAMES
            or name.startswith(("current_setting:", "current_setting_or_null:", "sequence:"))
        )

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    def _value(self, name: str) -> Datum:
        context = self._context
        path = context.planner.search_path
        match name:
            case "now":
                return context.transaction.started
            case "mz_now":
                return self._time
            case "current_user" | "session_user":
                return context.role.name
            case "current_database":
                return context.database
            case "current_schema":
                return next(iter(self._explicit_path()), None)
            case "current_schemas:true" | "current_schemas":
                # mz_catalog is searched too, but tools list all that is visible beside pg_catalog
                named = split_names(context.variables["search_path"])
                hidden = () if "mz_catalog" in named else ("mz_catalog",)
                return tuple(each for each in path() if each not in hidden)
            case "current_schemas:false":
                return self._explicit_path()
            case "pg_backend_pid":
                return context.pid
            case "pg_my_temp_schema":
                schema = context.planner.state.get(context.temporary_schema)
                return schema.oid if schema is not None else 0
            case "pg_advisory_unlock_all":
                context.coordinator.advisory.release_session(context.pid)
                return ""
            case "version":
                return VERSION
            case "mz_version":
                return context.variables["mz_version"]
            case _ if name.startswith("sequence:"):
                return self._of_sequence(*name.split(":")[1:])
            case _ if name.startswith("current_setting_or_null:"):
                name = name.removeprefix("current_setting_or_null:")
                return context.variables.show_if_known(name)
            case _:
                return context.variables.show(name.removeprefix("current_setting:"))

    def _explicit_path(self) -> tuple[str, ...]:
        """Return the schemas that are searched because the setting says so."""
        context = self._context
        named = split_names(context.variables["search_path"])
        hidden = {schema for schema in _IMPLICIT if schema not in named}
        if TEMPORARY not in named:
            hidden.add(context.temporary_schema)
        return tuple(each for each in context.planner.search_path() if each not in hidden)

    def _of_sequence(self, id: str, column: str) -> Datum:
        """Return a column of the row that a sequence is to those who read it."""
        item = self._context.planner.reader().state.item(id)
        sequences = self._context.coordinator.sequences
        position = sequences.position(generation_of(item), item.name)
        return {"last_value": position.last, "log_cnt": 0, "is_called": position.called}[column]
