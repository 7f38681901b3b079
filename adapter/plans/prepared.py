"""Prepared statements, and the plan cache by which sessions share them.

A `Prepared` keeps the syntax tree of its text and the plan, made once. The plan is valid while what
it was made from is the same: what the session sees of the catalog, the variables that names and
constants depend on, and which relations have an index. Otherwise it is made anew at the next use; a
result whose columns then differ is refused, as clients rely on the columns that they know.

Clients of the simple protocol, and drivers that prepare nothing by name, send the same text again
and again. So the cache returns plans by text, types of parameters, and what they depend on of the
session: the database, search path and cluster, and the time zone and the role, with its
row_security, if the plan depends on these.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from foreshore.adapter.plans.access_path import PeekPlan
from foreshore.adapter.plans.locked_read import LockedRead
from foreshore.adapter.plans.row_read import RowRead
from foreshore.adapter.plans.row_rules import RowRules
from foreshore.adapter.plans.target import Target
from foreshore.catalog.lookups import Lookups
from foreshore.catalog.state import Part, State
from foreshore.ids import GlobalId
from foreshore.privileges import Need
from foreshore.redaction import redacted
from foreshore.sql.bind.literals import LiteralParameters, Readings
from foreshore.sql.bind.planning import ParameterTypes
from foreshore.sql.parse.parse import Statement as Syntax
from foreshore.sql.parse.shapes import Taken, Value
from foreshore.sql.plan import Plan, WritePlan
from foreshore.sql.rewrite.values_template import Template
from foreshore.types import RelationDesc, SqlType

MOST_TEXTS = 512
LONGEST_TEXT = 16_384  # characters; a longer one hardly comes again
MOST_STATEMENTS = 8  # of a text that is kept as a whole
LONGEST_SCRIPT = 1024  # characters of such a text
MOST_SCRIPTS = 64  # their trees take up to 200 kB each


@dataclass(frozen=True, slots=True)
class Basis:
    """The parts of the catalog that a plan depends on, which are compared by identity."""

    seen: tuple[Part, Part | None]  # of the catalog, without other sessions' temporary objects
    arranged: frozenset[GlobalId]
    # What the transaction has written to, if it has changed anything: it sees that otherwise.
    own: frozenset[GlobalId] | None = None


class Origin(Struct, frozen=True):
    """How a statement with a name was prepared, as pg_prepared_statements shows it."""

    text: str
    at: int  # microseconds since 1970
    from_sql: bool  # by PREPARE


class Programs(Struct, frozen=True, eq=False):
    """The parts of a plan that run on tuples, compiled."""

    template: Template | None = None  # of an INSERT of values
    rules: RowRules | None = None  # of the table that it writes tuples to
    upsert: RowRead | None = None  # of the new rows of ON CONFLICT DO UPDATE
    locked_read: LockedRead | None = None  # of few rows that are locked
    row_read: RowRead | None = None  # of a query of few rows


class Scope(Struct, frozen=True, eq=False):
    """The sessions for which a plan is good: what it depends on beside its basis."""

    tables_only: bool = False  # it uses tables and nothing maintained over them
    lookups: Lookups | None = None  # the names in a query of system relations and nothing else
    on_zone: bool = False  # the session's time zone
    on_role: bool = False  # the role, by row-level security
    on_session: bool = False  # values of the session, which the plan has

    @property
    def survives_writes(self) -> bool:
        """Whether it uses nothing that a transaction sees otherwise once it has written rows."""
        return self.tables_only or self.lookups is not None


class Made(Struct, frozen=True, eq=False):
    """What planning has made of a statement; plans of the cache are shared by sessions."""

    plan: Plan | None = None
    peek: PeekPlan | None = None  # of a plan that reads, compiled
    used: frozenset[GlobalId] = frozenset()  # the items that its names were resolved to
    needs: tuple[Need, ...] = ()  # the rights that it needs
    # The locking subqueries within it, each as a SELECT of its own, by which collection it becomes.
    init_plans: "tuple[tuple[GlobalId, Prepared], ...]" = ()
    # The parts of its WITH that change rows, likewise.
    parts: "tuple[tuple[GlobalId, Prepared], ...]" = ()
    programs: Programs = Programs()
    scope: Scope = Scope()
    takes_names: bool = False  # of objects, as arguments of a reg* type
    readings: Readings | None = None  # of a shape: how arguments are read from literals of a text
    planning_seconds: float = 0.0  # of CPU of the thread
    target: Target | None = None  # the table that it writes, if it may


UNPLANNED = Made()


class Prepared(Struct, eq=False):
    """A prepared statement; without `syntax` it is empty.

    It is a struct, as each statement of the simple protocol copies one.
    """

    name: str
    syntax: Syntax | None
    declared: tuple[SqlType | None, ...] = ()
    parameters: tuple[SqlType, ...] = ()
    desc: RelationDesc | None = None
    made: Made = UNPLANNED
    basis: Basis | None = None
    variables: int = -1  # the version of the session's variables for which it is known to be valid
    found_valid: State | None = None  # the catalog's, with which the plan was last found valid
    # The same, and the version of the variables, with which its role was last found to have rights.
    found_allowed: tuple[State | None, int] = (None, -1)
    batch: int | None = None  # of messages that it came in; from the next on its columns are known
    # Of a shape: the literals with parameters in their places, and the values of its first text.
    literals: tuple[Sequence[Taken], list[Value]] | None = None
    within: GlobalId | None = None  # of a locking subquery: which one of its text it is
    origin: Origin | None = None  # of one that is kept by its name
    retyped: "Prepared | None" = None  # the same text, last planned for parameters of other types

    @property
    def is_empty(self) -> bool:
        """Whether the text held no statement."""
        return self.syntax is None

    @property
    def changes(self) -> bool:
        """Whether running it may leave something to commit."""
        return isinstance(self.made.plan, WritePlan)

    def take_plan(self, other: "Prepared") -> None:
        """Become what `other` is planned as; it is of the same text."""
        self.parameters, self.desc, self.made = other.parameters, other.desc, other.made
        self.basis, self.variables = other.basis, other.variables
        self.found_valid, self.found_allowed = other.found_valid, other.found_allowed

    def types(self, declared: Sequence[SqlType | None]) -> ParameterTypes:
        """Return the types of its parameters as planning begins."""
        return LiteralParameters(*self.literals) if self.literals else ParameterTypes(declared)


NO_STATEMENT = Prepared("", None)


class PlanKey(Struct, frozen=True):
    """The key of a plan in the cache."""

    text: str
    number: int  # of the statement in the text
    parameter_oids: tuple[int, ...]
    database: str
    search_path: tuple[str, ...]
    cluster: str
    time_zone: str | None  # None: good in all
    role: str | None = None  # its id; None: good for all
    row_security: str | None = None  # the setting, likewise
    own: frozenset[GlobalId] | None = None  # what the transaction has written to, if anything


def _broader(key: PlanKey) -> Iterator[PlanKey]:
    """Yield the keys of plans that are good for a session with this key, the broadest first."""
    for each in (key,) if key.own is None else (replace(key, own=None), key):
        yield replace(each, time_zone=None, role=None, row_security=None)
        yield replace(each, role=None, row_security=None)
        yield replace(each, time_zone=None)
        yield each


class PlanCache:
    """The plans last used, each of a statement of a text; and the texts of a few statements."""

    def __init__(self) -> None:
        self._scripts: OrderedDict[str, Sequence[Syntax]] = OrderedDict()
        self._plans: OrderedDict[PlanKey, Prepared] = OrderedDict()
        self._state: State | None = None  # the catalog's, when the newest plan was kept

    def get(self, key: PlanKey, is_valid: Callable[[Prepared], bool]) -> Prepared | None:
        """Return the planned statement of a text; None if there is none that `is_valid`."""
        for each in _broader(key):
            known = self._plans.get(each)
            if known is None or (each.own != key.own and not known.made.scope.survives_writes):
                continue
            if not is_valid(known):
                del self._plans[each]
                return None
            self._plans.move_to_end(each)
            return known
        return None

    def script(self, text: str) -> Sequence[Syntax] | None:
        """Return the statements of a text that `put_script` was given."""
        found = self._scripts.get(text)
        if found is not None:
            self._scripts.move_to_end(text)
        return found

    def put_script(self, text: str, statements: Sequence[Syntax]) -> None:
        """Keep the statements of a text, if they are a few, and it has no secrets."""
        if not 1 < len(statements) <= MOST_STATEMENTS or len(text) > LONGEST_SCRIPT:
            return
        if redacted(text) == text:
            self._scripts[text] = statements
            if len(self._scripts) > MOST_SCRIPTS:
                self._scripts.popitem(last=False)

    def put(self, key: PlanKey, prepared: Prepared, state: State) -> None:
        """Keep what has just been planned, if it may be planned the same for another session.

        What is good for no session any more is forgotten when the catalog's `state` is another. A
        plan that survives writes is the same whatever its transaction has written to.
        """
        basis = prepared.basis
        made, scope = prepared.made, prepared.made.scope
        if len(key.text) > LONGEST_TEXT or scope.on_session or basis is None:
            return
        if scope.survives_writes:
            key = replace(key, own=None)
        elif made.peek is None:
            return
        if not scope.on_zone:
            key = replace(key, time_zone=None)
        if not scope.on_role:
            key = replace(key, role=None, row_security=None)
        if state is not self._state:
            self._state = state
            self._forget_stale(state)
        self._plans[key] = Prepared(
            "",
            prepared.syntax,
            prepared.declared,
            prepared.parameters,
            prepared.desc,
            made,
            basis,
            literals=prepared.literals,
        )
        if len(self._plans) > MOST_TEXTS:
            self._plans.popitem(last=False)

    def _forget_stale(self, state: State) -> None:
        """Forget the plans over what the catalog no longer has; names are looked up anew."""
        parts = {id(part) for part in (None, *state.parts.values())}
        for key, plan in list(self._plans.items()):
            assert plan.basis is not None, key
            if plan.made.scope.lookups is None and not parts.issuperset(map(id, plan.basis.seen)):
                del self._plans[key]
