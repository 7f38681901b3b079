"""The planner of a session: it plans statements over the catalog as the transaction sees it.

Names are looked up on the session's search path, in the transaction's own catalog. A plan uses the
indexes that exist. It is kept until its basis changes, and is then made again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import thread_time
from typing import TYPE_CHECKING

from msgspec import structs

from foreshore import tracing
from foreshore.adapter.definitions.catalog_reader import SessionCatalog
from foreshore.adapter.definitions.plan_items import verify_sql_round_trip
from foreshore.adapter.plans.access_path import (
    IndexOn,
    PeekPlan,
    plan_peek,
)
from foreshore.adapter.plans.calls import calls_in
from foreshore.adapter.plans.locked_read import locked_read_of
from foreshore.adapter.plans.prepared import (
    LONGEST_SCRIPT,
    MOST_STATEMENTS,
    Basis,
    Made,
    PlanKey,
    Prepared,
    Programs,
    Scope,
)
from foreshore.adapter.plans.row_read import plan_optional_read, plan_row_read
from foreshore.adapter.plans.row_rules import rules_of
from foreshore.adapter.plans.target import Target, marked_by, target_in
from foreshore.adapter.services.collections import Collections
from foreshore.adapter.session.shaped_texts import OfText, ShapedTexts
from foreshore.adapter.statement.roles import require_untrusted_language, require_visible
from foreshore.adapter.transaction.transaction import NOTHING_STAGED
from foreshore.adapter.write.on_conflict import plan_update
from foreshore.catalog.item import Item
from foreshore.catalog.names import effective_path
from foreshore.catalog.planned import Planned
from foreshore.catalog.row_security import RowReader
from foreshore.catalog.state import State
from foreshore.compute.keys.layout import has_all_rows
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    SyntaxError_,
)
from foreshore.expr.evaluate import folding_little
from foreshore.expr.ir import Column
from foreshore.ids import GlobalId, temporary_schema
from foreshore.object_names import takes_names
from foreshore.privileges import Need
from foreshore.python_functions.compilation import definitions_of
from foreshore.python_functions.limits import check_allowed
from foreshore.sql import ast
from foreshore.sql.bind.literals import LiteralParameters
from foreshore.sql.bind.needs import Needs
from foreshore.sql.bind.planning import ParameterTypes
from foreshore.sql.optimize.key_steps import TableKey, TableKeys
from foreshore.sql.parse.parse import Statement as Syntax
from foreshore.sql.plan import (
    Begin,
    CloseCursor,
    Commit,
    CreateFunction,
    CreateView,
    Deallocate,
    Declare,
    Delete,
    Discard,
    Execute,
    Fetch,
    Insert,
    Listen,
    Locking,
    Merge,
    Notify,
    Plan,
    Query,
    ResetVariable,
    Rollback,
    Savepoint,
    Select,
    SetTransaction,
    SetVariable,
    ShowVariable,
    Update,
    WithChanges,
    result_desc,
)
from foreshore.sql.plan.reads import query_read_by, query_subscribed_by
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.sql.rewrite.values_template import template_of
from foreshore.types import Datum, RelationDesc, SqlType, oid_of

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

_NOTHING: frozenset[GlobalId] = frozenset()
OF_SESSION = (
    Begin
    | CloseCursor
    | Commit
    | Deallocate
    | Discard
    | Listen
    | Notify
    | ResetVariable
    | Rollback
    | Savepoint
    | SetTransaction
    | SetVariable
    | ShowVariable
)
MOST_RECENT = 32  # plans of texts that a session has at hand


class SessionPlanner:
    """Plans the statements of one session."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._coordinator: Collections = session.coordinator
        self._temporary_schema = temporary_schema(session.pid)
        self.texts = ShapedTexts(session)
        self._path: tuple[object, int, tuple[str, ...]] = (None, -1, ())
        self._recent: dict[tuple[str, tuple[int, ...], int], Prepared] = {}

    @property
    def state(self) -> State:
        """The catalog's state as the running transaction sees it."""
        transaction = self._session.transactions.running
        change = None if transaction is None else transaction.staged.catalog
        return self._coordinator.catalog.state if change is None else change.state

    def reader(self, basis: Basis | None = None) -> SessionCatalog:
        """Return the catalog as the running transaction sees it.

        With a `basis`, views are as a plan on it needs them; otherwise they are as defined.
        """
        transaction = self._session.transactions.running
        change = None if transaction is None else transaction.staged.catalog
        planned = self._coordinator.catalog.planned
        if change is not None:
            planned = planned.changed(change.planned)
        role = self._session.role
        refuses = self._session.variables["row_security"] == "off"
        return SessionCatalog(
            self.state,
            self._session.database,
            self.search_path(),
            self._temporary_schema,
            role,
            planned,
            basis.arranged if basis is not None else _NOTHING,
            self._is_own if basis is not None and basis.own is not None else None,
            row_reader=RowReader(role.id, refuses, self._session_value),
        )

    def _session_value(self, name: str) -> Datum:
        """Return a value of the session that a SUBSCRIBE keeps from its beginning."""
        session, (kind, _, detail) = self._session, name.partition(":")
        match kind:
            case "current_user":
                return session.role.name
            case "session_user":
                return session.variables["session_authorization"]
            case "current_database":
                return session.database
            case _:
                require_visible(self.state, session.role, detail)
                if kind == "current_setting":
                    return session.variables.show(detail)
                return session.variables.show_if_known(detail)

    def search_path(self) -> tuple[str, ...]:
        """Return the schemas searched, in order."""
        session, state = self._session, self.state
        known_state, known_version, path = self._path
        if known_state is not state or known_version != session.variables.plan_version:
            path = effective_path(
                state,
                session.database,
                session.role,
                session.variables["search_path"],
                self._temporary_schema,
            )
            self._path = (state, session.variables.plan_version, path)
        return path

    def basis(self) -> Basis:
        """Return the basis of a plan made now."""
        seen = self.state.parts_seen_with(self._temporary_schema)
        return Basis(seen, *self._collections())

    def _collections(self) -> tuple[frozenset[GlobalId], frozenset[GlobalId] | None]:
        """Return the relations with an index, and the written ones; `arranged` and `own` of now."""
        transaction = self._session.transactions.running
        if transaction is not None and transaction.changes_data:
            return _NOTHING, frozenset(transaction.staged.rows)
        return self._coordinator.arranged(self._session.cluster), None

    def verify_sql_round_trip(self, before: State) -> None:
        """Raise if an item defined since `before` differs from its statement."""
        reader = self.reader()
        verify_sql_round_trip(before, reader.state, reader.planned, self._is_own)

    def _is_own(self, id: GlobalId) -> bool:
        """Return whether the running transaction has written to `id` or created it."""
        transaction = self._session.transactions.running
        return transaction is not None and transaction.reads_own_writes((id,))

    async def ready(self, prepared: Prepared) -> None:
        """Plan a statement, unless its plan is still valid.

        This is done on a thread if it may take long, and again if the basis changes meanwhile, so
        the plan is valid when this returns. A statement that is kept by its name is planned once
        for each set of tables that a transaction has written to before it.
        """
        syntax = prepared.syntax
        while syntax is not None and not self.is_valid(prepared):
            if prepared.origin is not None and self._take_known(prepared, syntax):
                return
            await self._compile_source(syntax.ast)
            is_small = self._session.environment.planning_cost.is_small(syntax.text, self.state)
            try:
                with tracing.phase("plan"):
                    await self._session.run_aside(is_small, self._prepare, prepared)
            except DatabaseError as error:
                if syntax.translated:
                    error.position = None
                raise
            if prepared.origin is not None:
                self.remember(prepared, syntax.whole, _oids(prepared.declared))

    def _take_known(self, prepared: Prepared, syntax: Syntax) -> bool:
        """Take the plan that the same text has been given, if it has the same meaning."""
        known = self.known(syntax.whole, _oids(prepared.declared))
        if known is None or known.parameters != prepared.parameters:
            return False
        if _shape(known.desc) != _shape(prepared.desc):
            return False
        prepared.take_plan(known)
        return True

    async def _compile_source(self, syntax: ast.StatementSyntax) -> None:
        """Have the source in CREATE FUNCTION ... LANGUAGE python compiled, which may take long.

        The right and the server's option are checked first.
        """
        if isinstance(syntax, ast.CreateFunctionStatement) and syntax.language == "python":
            require_untrusted_language(self._session.role, syntax.language)
            check_allowed()
            await self._session.run_aside(False, definitions_of, syntax.body)

    def is_valid(self, prepared: Prepared) -> bool:
        """Return whether a statement has a plan that would be the same if made now."""
        session = self._session
        if prepared.variables != self._version_of(prepared.made.scope):
            return False
        running, state = session.transactions.running, self._coordinator.catalog.state
        is_own = running is not None and running.staged is not NOTHING_STAGED
        basis = prepared.basis
        if prepared.found_valid is state and basis is not None and not is_own:
            if prepared.made.scope.tables_only:
                return True
            if basis.arranged is self._coordinator.arranged(session.variables["cluster"]):
                return True
        if not self._is_valid_if_shared(prepared):
            return False
        prepared.found_valid = None if is_own else state
        return True

    def _version_of(self, scope: Scope) -> int:
        """Return the version of the session's variables that a plan depends on."""
        variables = self._session.variables
        return variables.version if scope.on_session else variables.plan_version

    def _is_valid_if_shared(self, prepared: Prepared) -> bool:
        """Return whether a plan is valid, given that its variables are those of the session.

        A plan that uses tables only does not depend on maintained collections over them. A query
        of system relations depends on what its names mean, and on no object.
        """
        basis = prepared.basis
        if basis is None:
            return False
        if self._is_present(basis, tables_only=prepared.made.scope.tables_only):
            return True
        lookups = prepared.made.scope.lookups
        if lookups is None or not lookups.hold_in(self.reader()):
            return False
        prepared.basis = self.basis()  # compared faster from now on
        return True

    def _is_present(self, basis: Basis, *, tables_only: bool) -> bool:
        if basis.seen != self.state.parts_seen_with(self._temporary_schema):
            return False
        if tables_only:
            return True
        arranged, own = self._collections()
        return basis.arranged is arranged and basis.own == own

    @folding_little()
    def _prepare(self, prepared: Prepared) -> None:
        """Plan a statement."""
        assert prepared.syntax is not None
        began = thread_time()
        basis, variables = self.basis(), self._session.variables
        version, plan_version = variables.version, variables.plan_version
        reader = self.reader(basis)
        declared: Sequence[SqlType | None] = prepared.declared
        if prepared.made.plan is not None:
            declared = [reader.present_type(type) for type in prepared.parameters]
        types, zone = prepared.types(declared), SessionZone(self._session.time_zone)
        needs = Needs()
        plan = plan_statement(prepared.syntax, reader, types, zone=zone, needs=needs)
        peek = self._peek_of(plan)
        init_plans, parts = self._init_plans(prepared, peek), self._parts(prepared, plan)
        subscribes = query_subscribed_by(plan) is not None
        peeks = [peek, *(each.made.peek for _, each in (*init_plans, *parts))]
        if reader.unexpanded_views and not all(_uses_indexes(each, subscribes) for each in peeks):
            types = prepared.types(declared)
            needs = Needs()
            defined = reader.as_defined()
            plan = plan_statement(prepared.syntax, defined, types, zone=zone, needs=needs)
            peek = self._peek_of(plan)
            init_plans, parts = self._init_plans(prepared, peek), self._parts(prepared, plan)
        desc = self._desc_of(plan)
        is_known = prepared.batch not in (None, self._session.statements.batch)
        if is_known and _shape(desc) != _shape(prepared.desc):
            raise FeatureNotSupported(
                "cached plan must not change result type", routine="RevalidateCachedQuery"
            )
        used, parameters = frozenset(reader.used), types.resolved()
        for _, each in (*init_plans, *parts):
            each.made = structs.replace(each.made, used=used)
        named = (Need(each, "USAGE") for each in sorted(reader.schemas_named))
        # A view is checked when it is read, and a function's body when it is called.
        kept = isinstance(plan, CreateView | CreateFunction)
        is_of_system = isinstance(plan, Select) and reader.lookups.only_system and not init_plans
        programs, row_reader = self._compile(plan, peek, reader.planned), reader.row_reader
        scope = Scope(
            # An index of a view may be read once it is there.
            _uses_tables_only(plan, peek, programs) and not any(map(self._is_view, used)),
            reader.lookups if is_of_system else None,
            zone.was_used,
            row_reader is not None and row_reader.asked,
            row_reader is not None and row_reader.fixed,
        )
        made = Made(
            plan,
            peek,
            used,
            (*named, *(() if kept else needs.all())),
            init_plans,
            parts,
            programs,
            scope,
            any(map(takes_names, parameters)),
            types.readings if isinstance(types, LiteralParameters) else None,
            thread_time() - began,
            _target_of(plan, reader),
        )
        # Not valid until all of it is there: this may be interrupted.
        prepared.basis = prepared.found_valid = None
        prepared.made, prepared.parameters, prepared.desc = made, parameters, desc
        prepared.variables = version if scope.on_session else plan_version
        prepared.found_allowed = None, -1
        prepared.basis = basis

    def _is_view(self, id: GlobalId) -> bool:
        item = self.state.get(id)
        return isinstance(item, Item) and item.type == "view"

    @staticmethod
    def _compile(
        plan: Plan, peek: PeekPlan | None, planned: Mapping[GlobalId, Planned]
    ) -> Programs:
        """Compile the parts of a plan that run on tuples."""
        upsert = plan_update(plan.on_conflict) if isinstance(plan, Insert) else None
        if peek is None:
            return Programs(upsert=upsert)
        match plan:
            case Insert(row_outputs=(), order_by=()) if peek.reads_nothing:
                calls = calls_in(peek.query.relation) if peek.has_side_effects else ()
                template = template_of(peek.query.relation, calls)
                rules = None if template is None else rules_of(planned[plan.table])
                return Programs(template, rules, upsert)
            case Select(locking=None) | Declare(query=Select(locking=None)):
                return Programs(row_read=plan_optional_read(peek, planned))
            case Select(locking=Locking(wait="block" | "error", tables=(table,))):
                return _locking_programs(peek, planned, table)
            case Select(locking=Locking(wait="block" | "error")):
                return Programs(row_read=plan_row_read(peek, planned))
            case Update() if plan.row_outputs:  # they are computed over what is selected
                return Programs(row_read=plan_row_read(peek, planned))
            case Delete(table=table) | Merge(table=table) | Update(table=table):
                found = _locking_programs(peek, planned, table)
                if not isinstance(plan, Delete) and found.row_read is not None:
                    return structs.replace(found, rules=rules_of(planned[table]))
                return found
            case Insert(table=table) if not peek.reads_nothing:
                named = None if peek.key is None else peek.key.named
                read = _locking_programs(peek, planned, table if named is None else named.table)
                return structs.replace(read, rules=rules_of(planned[table]), upsert=upsert)
            case _:
                return Programs(upsert=upsert)

    def _peek_of(self, plan: Plan) -> PeekPlan | None:
        query = query_subscribed_by(plan)
        if query is not None:
            return plan_peek(query, self._subscribed_indexes, self._keys_of, by_keys=False)
        query = query_read_by(plan)
        if isinstance(plan, Select):
            return self._plan_select(plan)
        return None if query is None else self.plan_query(query)

    def _plan_select(self, select: Select) -> PeekPlan:
        """Return how a SELECT is answered; rows that are locked in an order, by first ones."""
        query, locking = select.query, select.locking
        if locking is None or locking.limit is None:
            return self.plan_query(query)
        cut = replace(query, finishing=structs.replace(query.finishing, limit=1))
        return replace(self.plan_query(cut), query=query)

    def _init_plans(
        self, prepared: Prepared, peek: PeekPlan | None
    ) -> tuple[tuple[GlobalId, Prepared], ...]:
        """Return the locking subqueries that a statement reads, which run before it."""
        if peek is None or not peek.query.init_plans:
            return ()
        read = peek.query.block.sources()
        return tuple(
            (
                each.id,
                Prepared(
                    "",
                    prepared.syntax,
                    made=Made(each.plan, self._plan_select(each.plan)),
                    within=each.id,
                ),
            )
            for each in peek.query.init_plans
            if each.id in read and isinstance(each.plan, Select)
        )

    def _parts(self, prepared: Prepared, plan: Plan) -> tuple[tuple[GlobalId, Prepared], ...]:
        """Return the parts of a statement's WITH that change rows."""
        parts, planned = [], self.reader().planned
        for each in plan.parts if isinstance(plan, WithChanges) else ():
            peek = self._peek_of(each.plan)
            init_plans = self._init_plans(prepared, peek)
            programs = self._compile(each.plan, peek, planned)
            made = Made(each.plan, peek, init_plans=init_plans, programs=programs)
            parts.append((each.id, Prepared("", prepared.syntax, made=made, within=each.id)))
        return tuple(parts)

    def _subscribed_indexes(self, id: GlobalId) -> Sequence[IndexOn]:
        """Return the indexes to subscribe to in place of `id`, if it has no shard."""
        return () if id in self._coordinator.capabilities else self._indexes(id)

    def _indexes(self, id: GlobalId) -> Sequence[IndexOn]:
        if self._is_own(id):  # indexes lack the transaction's writes
            return ()
        planned = self._coordinator.catalog.planned
        return [
            IndexOn(item.id, planned[item.id].key)
            for item in self._coordinator.index_for(id, self._session.cluster)
        ]

    def plan_alone(self, syntax: Syntax, types: ParameterTypes | None = None) -> Plan:
        """Return a plan that is not to be run."""
        reader = self.reader(self.basis())
        return plan_statement(syntax, reader, types or (), zone=self._session.time_zone)

    async def ready_again(
        self, prepared: Prepared, args: Sequence[Datum]
    ) -> tuple[Prepared, Sequence[Datum]]:
        """Return a statement to run again, planned for what the catalog has become meanwhile.

        The plan of a shape was for what it was.
        """
        if isinstance(args, OfText) and not self.is_valid(prepared):
            return await self.plan_syntax((await self._session.script(args.text)).parsed[0]), ()
        await self.ready(prepared)
        return prepared, args

    def peek_without_indexes(
        self, prepared: Prepared, younger: frozenset[GlobalId] = _NOTHING
    ) -> PeekPlan:
        """Return how a statement is answered from shards only, at times that indexes lack.

        Views that are `younger` than the time are replaced by their definitions.
        """
        assert prepared.syntax is not None
        types = prepared.types(prepared.parameters)
        reader = self.reader(replace(self.basis(), arranged=_NOTHING))
        if younger:
            reader.own = younger.__contains__
        plan = plan_statement(prepared.syntax, reader, types, zone=self._session.time_zone)
        query = query_subscribed_by(plan) or query_read_by(plan)
        assert query is not None, plan
        for each in query.init_plans:
            if each.id == prepared.within:
                found = query_read_by(each.plan)
                assert found is not None, each
                query = found
        return plan_peek(query, lambda id: [], self._keys_of, by_keys=False)

    def plan_query(self, query: Query) -> PeekPlan:
        """Return how `query` is answered on the session's cluster."""
        return plan_peek(query, self._indexes, self._keys_of)

    def plan_aside(self, query: Query) -> PeekPlan:
        """Return how a query over rows that a statement has is answered, in this process."""
        return plan_peek(query, lambda id: [], self._keys_of, by_keys=False).in_process()

    def _keys_of(self, id: GlobalId) -> TableKeys:
        reader = self.reader()
        planned = reader.planned.get(id)
        if planned is None:
            return TableKeys()
        item = reader.state.get(id)
        if not planned.unique or (isinstance(item, Item) and not item.has_key_indexes):
            is_table = id in self._coordinator.group
            return TableKeys((), self._coordinator.storage.count_updates(id) if is_table else None)
        unique = TableKeys.of(planned.unique)
        complete = [each for each in planned.unique if has_all_rows(each, planned.desc)]
        if not complete:
            return unique
        index = self._coordinator.keys.named(id, complete[0])
        keys = [replace(each, prefix=True) for each in unique.keys]
        for item in reader.state.indexes_on(id):
            columns = [c.index for c in reader.planned[item.id].key if isinstance(c, Column)]
            if len(columns) == len(reader.planned[item.id].key):
                rest = [each for each in complete[0].columns if each not in columns]
                keys.append(TableKey(item.name, (*columns, *rest), prefix=True))
        return TableKeys(tuple(keys), None if index is None else index.arrangement.rows)

    def _desc_of(self, plan: Plan) -> RelationDesc | None:
        return self.named_desc(plan) or result_desc(plan)

    def named_desc(self, plan: Plan) -> RelationDesc | None:
        """Return the columns of the cursor of FETCH, or of the statement of EXECUTE."""
        match plan:
            case Fetch(name=name, move=False):
                portal = self._session.portals.get(name)
                return None if portal is None else portal.desc
            case Execute(name=name):
                named = self._session.statements.get(name)
                return None if named is None else named.desc
            case _:
                return None

    async def plan_syntax(self, syntax: Syntax) -> Prepared:
        """Return a planned statement without parameters."""
        prepared = Prepared("", syntax)
        await self.ready(prepared)
        if prepared.parameters:
            raise SyntaxError_("there is no parameter $1", sqlstate="42P02")
        return prepared

    async def prepared_of(self, text: str, syntax: Syntax, number: int) -> Prepared:
        """Return a planned statement of a Query message: its `number`, 0 if it is the only one."""
        is_kept = number <= MOST_STATEMENTS and not self._session.transactions.failed
        if number and is_kept and (known := self.known(text, (), number)) is not None:
            return known
        prepared = await self.plan_syntax(syntax)
        if number == 0 or (is_kept and len(text) <= LONGEST_SCRIPT):
            self.remember(prepared, text, (), number)
        await self.texts.learn(prepared, is_only=number == 0)
        await self.ready(prepared)  # others may have run meanwhile
        return prepared

    def known(
        self, text: str, parameter_oids: Sequence[int] = (), number: int = 0
    ) -> Prepared | None:
        """Return a statement of a text if some session has a plan valid in this one.

        Its number is 0 if it is the only one. It is shared by all who ask for it in this session.
        """
        session, name = self._session, (text, tuple(parameter_oids), number)
        recent = self._recent.get(name)
        if recent is not None and self.is_valid(recent):
            return recent
        found = session.environment.plans.get(
            self._key(text, parameter_oids, number), self._is_valid_if_shared
        )
        if found is None:
            return None
        found = structs.replace(found, variables=self._version_of(found.made.scope))
        if len(self._recent) >= MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[name] = found
        return found

    def remember(
        self, prepared: Prepared, text: str, parameter_oids: Sequence[int] = (), number: int = 0
    ) -> None:
        """Keep the plan of a statement for all sessions, unless only this one sees its catalog.

        That of a query of system relations is good wherever its names mean the same.
        """
        transaction = self._session.transactions.running
        is_own = transaction is not None and transaction.catalog is not None
        if not is_own or prepared.made.scope.lookups is not None:
            key = self._key(text, parameter_oids, number)
            self._session.environment.plans.put(key, prepared, self._coordinator.catalog.state)

    def _key(self, text: str, parameter_oids: Sequence[int], number: int) -> PlanKey:
        session = self._session
        return PlanKey(
            text if session.dialect == "postgres" else f"{session.dialect}\0{text}",
            number,
            tuple(parameter_oids),
            session.database,
            self.search_path(),
            session.cluster,
            session.time_zone,
            session.role.id,
            session.variables["row_security"],
            self._collections()[1],
        )


def _target_of(plan: Plan, reader: SessionCatalog) -> Target | None:
    """Return the table that a plan writes; None if it writes none, or is refused when it runs."""
    if not isinstance(plan, Insert | Update | Delete | Merge) or not plan.table.startswith("u"):
        return None
    state, id = reader.state, plan.table
    is_refused = marked_by(state, id) is not None
    return None if is_refused else target_in(state, reader.planned[id], id)


def _locking_programs(
    peek: PeekPlan, planned: Mapping[GlobalId, Planned], table: GlobalId
) -> Programs:
    """Return the read of few rows of which those of `table` are locked."""
    read = plan_row_read(peek, planned)
    locked = None if read is None else locked_read_of(peek, read, table)
    return Programs(locked_read=locked, row_read=read)


def _uses_tables_only(plan: Plan, peek: PeekPlan | None, programs: Programs) -> bool:
    """Return whether a plan would be the same whatever is maintained over tables."""
    if peek is None or peek.reads_nothing:
        return peek is not None or isinstance(plan, OF_SESSION)  # whatever is in the catalog
    read = programs.row_read
    is_keyed = programs.locked_read is not None or (read is not None and read.reads_keys_only)
    return is_keyed and peek.index is None


def _uses_indexes(peek: PeekPlan | None, subscribes: bool) -> bool:
    """Return whether a plan can read indexes; a subscription reads a single one."""
    return peek is not None and (peek.index is not None or (not subscribes and peek.asks_cluster))


def _oids(types: Sequence[SqlType | None]) -> tuple[int, ...]:
    return tuple(0 if type is None else oid_of(type) for type in types)


def _shape(desc: RelationDesc | None) -> object:
    return desc and (desc.names, tuple(column.type for column in desc.columns))
