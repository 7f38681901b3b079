"""The rule of each statement: ownership, attributes and rights that it requires of a role.

Rights on relations, columns, sequences and functions are recorded while a statement is bound
(`sql/bind/needs.py`). This table has the rest: ownership, attributes of roles, and the right to
create. Every kind of statement has an entry; superusers pass all of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from foreshore.adapter.plans.access_path import Constant
from foreshore.adapter.rights import clusters
from foreshore.adapter.rights.checker import Checker
from foreshore.adapter.statement.role_names import role_of
from foreshore.adapter.statement.roles import (
    require_settable,
    require_untrusted_language,
    require_visible,
)
from foreshore.catalog.item import Connection, Database, Item, Object, Replica, Role, Schema, Secret
from foreshore.catalog.needs import require_all
from foreshore.catalog.rights import holds, is_member, may_act_as
from foreshore.errors import InsufficientPrivilege
from foreshore.expr.functions.function import arguments_of
from foreshore.ids import GlobalId
from foreshore.privileges import Need
from foreshore.sinks.python import PythonTarget
from foreshore.sinks.spec import connections_of as connections_of_target
from foreshore.sinks.spec import is_place
from foreshore.sinks.spec import secrets_of as secrets_of_target
from foreshore.sinks.webhook import WebhookTarget
from foreshore.sources.python import MemoSource, PythonSource
from foreshore.sources.spec import connections_of, connections_of_messages, secrets_of
from foreshore.sources.spec import is_place as is_place_of_source
from foreshore.sql import plan as plans
from foreshore.types import SqlType

Rule: TypeAlias = Callable[[Checker, Any], None]


def _nothing(check: Checker, plan: Any) -> None:
    """Require nothing more."""


def _query(check: Checker, plan: Any) -> None:
    """Require the right to use the session's cluster if relations are read."""
    peek = check.context.prepared.made.peek
    if peek is not None and not isinstance(peek.path, Constant):
        check.use_cluster()


def _attribute(name: str, what: str) -> Rule:
    def rule(check: Checker, plan: Any) -> None:
        if not getattr(check.role, name):
            raise InsufficientPrivilege(f"permission denied to {what}")

    return rule


# --- CREATE --------------------------------------------------------------------------------


def _named(check: Checker, plan: Any) -> None:
    check.create_in(plan.name)


def _alter_connection(check: Checker, plan: plans.AlterConnection) -> None:
    check.own(check.found("connection", plan.name))


def _source(check: Checker, plan: plans.CreateSource) -> None:
    asked = () if plan.asked is None else plan.asked.tables
    for name in (plan.name, plan.progress, *(each.name for each in asked)):
        if name is not None:
            check.create_in(name)
    _use(check, (*connections_of(plan.spec), *secrets_of(plan.spec)))
    if isinstance(plan.spec, PythonSource | MemoSource):
        raise InsufficientPrivilege("must be superuser to create a source from Python")
    if is_place_of_source(plan.spec):
        _need_files(check, "pg_read_server_files", "create a source of files")
    check.create_on_cluster(plan.cluster)


def _source_table(check: Checker, plan: plans.CreateSourceTable) -> None:
    check.create_in(plan.name)
    check.own(check.found("source", plan.source))
    _use(check, connections_of_messages(plan.messages))


def _source_tables(check: Checker, plan: plans.AddSourceTables) -> None:
    for name in (plan.source, *(each.name for each in plan.tables)):
        if name is not None:
            check.create_in(name)
    check.own(check.found("source", plan.source))


def _alter_source(check: Checker, plan: plans.DropSourceTables | plans.RefreshSourceTables) -> None:
    for name in (plan.source, *plan.names):
        check.own(check.found("source", name))


def _alter_options(
    check: Checker, plan: plans.AlterSource | plans.AlterSink | plans.SetSinkFrom
) -> None:
    is_source = isinstance(plan, plans.AlterSource)
    check.own(check.found("source" if is_source else "sink", plan.name))


def _validate(check: Checker, plan: plans.ValidateConnection) -> None:
    found = check.found("connection", plan.name)
    if isinstance(found, Connection):
        check.need(found, "USAGE")


def _sink(check: Checker, plan: plans.CreateSink) -> None:
    check.create_in(plan.subscription.name)
    target = plan.spec.target
    _use(check, (*connections_of_target(target), *secrets_of_target(target)))
    if isinstance(target, PythonTarget):
        raise InsufficientPrivilege("must be superuser to create a sink to Python")
    if isinstance(target, WebhookTarget) and target.private:
        raise InsufficientPrivilege("must be superuser to create a sink to a private address")
    if is_place(plan.spec.target):
        _need_files(check, "pg_write_server_files", "create a sink to files")
    check.create_on_cluster(plan.cluster)


def _explain_sink(check: Checker, plan: plans.ExplainSinkSchema) -> None:
    target = plan.sink.spec.target
    _use(check, (*connections_of_target(target), *secrets_of_target(target)))


def _metric(check: Checker, plan: plans.CreateMetric) -> None:
    check.create_in(plan.name)
    if not may_act_as(check.state, check.role, "pg_write_server_files"):
        raise InsufficientPrivilege(
            "permission denied to create a metric",
            detail="Whoever reaches the HTTP port reads it at /metrics without a password.",
            hint='Only members of the role "pg_write_server_files" may create metrics.',
        )


def _use(check: Checker, ids: Iterable[str]) -> None:
    for id in ids:
        used = check.state.objects[id]
        assert isinstance(used, Connection | Secret), used
        check.need(used, "USAGE")


def _type(check: Checker, plan: plans.CreateDomain | plans.CreateStructured) -> None:
    check.create_in(plan.name)
    check.use_types(plan.depends_on)


def _schema(check: Checker, plan: plans.CreateSchema) -> None:
    check.create_on_database(plan.database)


def _table(check: Checker, plan: plans.CreateTable) -> None:
    check.create_in(plan.name)
    check.use_types(plan.depends_on)
    check.use_types_of(plan.desc)
    for key in plan.foreign_keys:
        _references(check, key.references, key.referenced)


def _references(check: Checker, id: GlobalId, columns: tuple[str, ...]) -> None:
    if check.state.get(id) is not None:
        need = Need(id, "REFERENCES", tuple(columns))
        require_all(check.state, check.reader.planned, check.role, (need,))


def _table_as(check: Checker, plan: plans.CreateTableAs) -> None:
    _table(check, plan.definition)
    if plan.with_data:
        _query(check, plan)


def _function(check: Checker, plan: plans.CreateFunction) -> None:
    check.create_in(plan.name)
    check.use_types(plan.depends_on)
    if plan.function.language == "python":
        require_untrusted_language(check.role, "python")
    if plan.or_replace:
        for each in check.reader.find_functions(plan.name.parts):
            if each.arguments == arguments_of(plan.function.types):
                check.own(each)


def _sequence(check: Checker, plan: plans.CreateSequence) -> None:
    check.create_in(plan.name)
    if plan.owned_by:
        check.own_id(plan.owned_by[0])


def _view(check: Checker, plan: plans.CreateView | plans.CreateMaterializedView) -> None:
    check.create_in(plan.name)
    check.use_types_of(plan.query.desc)
    if isinstance(plan, plans.CreateMaterializedView):
        check.create_on_cluster(plan.cluster)
    if plan.or_replace:
        check.own(check.relation(plan.name))


def _index(check: Checker, plan: plans.CreateIndex) -> None:
    each = check.state.get(plan.on)
    if not isinstance(each, Item):
        return
    check.own(each)
    schema = check.schema_of(each)
    check.create_in_schema(schema)
    check.create_on_cluster(plan.cluster)
    need = Need(each.id, "SELECT", any_column=True, role=each.owner)
    require_all(check.state, check.reader.planned, check.role, (need,))


# --- ALTER and DROP ------------------------------------------------------------------------


def _own(check: Checker, plan: Any) -> None:
    check.own(check.found(plan.kind, plan.name))


def _alter_table(check: Checker, plan: plans.AlterTable) -> None:
    check.own_id(plan.table)
    if plan.table is not None and plan.definition is not None:
        check.use_types(plan.definition.depends_on - {*check.state.item(plan.table).depends_on})
    for key in plan.foreign.added:
        _references(check, key.references, key.referenced)


def _policy(check: Checker, plan: Any) -> None:
    """Require the rights of the owner of the table."""
    named = isinstance(plan, plans.DropPolicy | plans.CommentPolicy)
    if named and check.state.policy_on(plan.table or "", plan.name) is None:
        return  # the statement reports it
    if plan.table is not None:
        each = check.state.get(plan.table)
        check.own(each, "relation" if isinstance(plan, plans.CommentPolicy) else None)


def _alter_sequence(check: Checker, plan: plans.AlterSequence) -> None:
    check.own_id(plan.id)
    if plan.owned_by:
        check.own_id(plan.owned_by[0])


def _swap(check: Checker, plan: plans.Swap) -> None:
    for name in (plan.name, plan.other):
        check.own(check.found(plan.kind, name))


def _alter_enum(check: Checker, plan: plans.AlterEnum) -> None:
    check.own(check.found("type", plan.name))


def _alter_secret(check: Checker, plan: plans.AlterSecret) -> None:
    check.own(check.found("secret", plan.name))


def _alter_network_policy(check: Checker, plan: plans.AlterNetworkPolicy) -> None:
    check.own(check.state.network_policy(plan.name))


def _rename(check: Checker, plan: plans.Rename) -> None:
    each = check.found(plan.kind, plan.name)
    check.own(each)
    match each:
        case Item():
            schema = check.schema_of(each)
            check.create_in_schema(schema)
        case Schema(database=str() as database):
            check.create_on_database(check.state.objects[database].name)
        case Database():
            _attribute("create_db", "rename database")(check, plan)
        case _:
            pass


def _set_owner(check: Checker, plan: plans.SetOwner) -> None:
    each = check.found(plan.kind, plan.name)
    check.own(each)
    if each is None:
        return
    _give(check, each, role_of(check.context, plan.role))


def _give(check: Checker, each: Object, role: Role) -> None:
    """Require what an object's new owner needs, and that it may be made so."""
    if not is_member(check.state, check.role, role.id):
        raise InsufficientPrivilege(f'must be member of role "{role.name}"')
    match each:
        case Item():
            schema = check.schema_of(each)
            if not schema.temporary and not holds(check.state, role, schema, "CREATE"):
                raise InsufficientPrivilege(f"permission denied for schema {schema.name}")
        case Schema(database=str() as database):
            check.create_on_database(check.state.objects[database].name)
        case Database():
            _attribute("create_db", "change owner of database")(check, None)
        case _:
            pass


def _set_schema(check: Checker, plan: plans.SetSchema) -> None:
    each = check.found(plan.kind, plan.name)
    check.own(each)
    if isinstance(each, Item):
        old = check.state.objects[each.schema]
        database = getattr(old, "database", None)
        schema = None if database is None else check.state.schema(database, plan.schema)
        if schema is not None:
            check.create_in_schema(schema)


def _comment(check: Checker, plan: plans.Comment) -> None:
    match plan.kind:
        case "column" | "constraint":
            check.own(check.relation(plan.name), "relation")
        case "table" | "view" | "materialized view" | "index":
            check.own(check.relation(plan.name))
        case "role":
            pass  # the statement asks for CREATEROLE itself
        case _:
            check.own(check.found(plan.kind, plan.name))


def _drop(check: Checker, plan: plans.Drop) -> None:
    for name in plan.names:
        each = check.found(plan.kind, name, altered=False)
        if isinstance(each, Replica):
            each = check.state.objects[each.cluster]
        check.own_or_its_schema(each)


def _drop_function(check: Checker, plan: plans.DropFunction) -> None:
    for parts, types in plan.functions:
        for each in _functions(check, parts, types):
            check.own_or_its_schema(each)


def _functions(
    check: Checker, parts: tuple[str, ...], types: tuple[SqlType, ...] | None
) -> list[Item]:
    """Return the functions that a name means, with the types of their parameters if given."""
    found = check.reader.find_functions(parts)
    return [each for each in found if types is None or each.arguments == arguments_of(types)]


def _alter_function(check: Checker, plan: plans.AlterFunction) -> None:
    for each in _functions(check, plan.name, plan.types):
        check.own(each)
        schema = check.schema_of(each)
        match plan.action:
            case "rename":
                check.create_in_schema(schema)
            case "owner" if plan.role is not None:
                _give(check, each, role_of(check.context, plan.role))
            case "schema":
                new = check.state.schema(schema.database or "", plan.value or "")
                if new is not None:
                    check.create_in_schema(new)
            case _:
                pass


def _truncate(check: Checker, plan: plans.Truncate) -> None:
    """Tables that refer to those truncated need the right too, their sequences an owner."""
    found = list(plan.tables)
    for id in found:
        found += [each for each in _referring(check, id) if plan.cascade and each not in found]
    needs = [Need(id, "TRUNCATE") for id in found if id not in plan.tables]
    require_all(check.state, check.reader.planned, check.role, needs)
    if plan.restart_identity:
        for item in check.state.all(Item):
            if item.owned_by and item.owned_by.table in found:
                check.own(item)


def _referring(check: Checker, id: GlobalId) -> list[GlobalId]:
    """Return the tables whose foreign keys refer to a table."""
    return [
        item.id
        for item in check.state.all(Item)
        if any(key.references == id for key in item.foreign_keys or ())
    ]


def _advance(check: Checker, plan: plans.Advance) -> None:
    check.own_id(plan.id)


def _refresh(check: Checker, plan: plans.RefreshView) -> None:
    check.own(check.relation(plan.name))


# --- others --------------------------------------------------------------------------------


def _explain_object(check: Checker, plan: Any) -> None:
    """Require a right to read an object in order to see how it is maintained."""
    of = plan.of if isinstance(plan, plans.ExplainFreshness) else plan.object
    each = check.state.get(of) if isinstance(of, str) else None
    if isinstance(each, Item):
        target = each.on or each.id
        need = Need(target, "SELECT", any_column=True)
        require_all(check.state, check.reader.planned, check.role, (need,))


def _show_create(check: Checker, plan: plans.ShowCreate) -> None:
    each = check.found(plan.kind, plan.name, altered=False)
    if isinstance(each, Item):
        schema = check.schema_of(each)
        if not schema.temporary:
            check.need(schema, "USAGE")


def _set_variable(check: Checker, plan: plans.SetVariable | plans.ResetVariable) -> None:
    require_settable(check.role, plan.name or "")
    if isinstance(plan, plans.SetVariable) and plan.name.lower() == "database" and plan.values:
        database = check.state.database(plan.values[0])
        if database is not None and not holds(check.state, check.role, database, "CONNECT"):
            raise InsufficientPrivilege(
                f'permission denied for database "{database.name}"',
                detail="User does not have CONNECT privilege.",
            )


def _show_variable(check: Checker, plan: plans.ShowVariable) -> None:
    require_visible(check.state, check.role, plan.name)


def _maintain(check: Checker, plan: plans.Maintain) -> None:
    for id in plan.rebuilt:
        check.own_id(id)
    if plan.verb == "checkpoint" and not may_act_as(check.state, check.role, "pg_checkpoint"):
        raise InsufficientPrivilege(
            "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT"
        )


def _explain(check: Checker, plan: plans.Explain) -> None:
    if plan.stage == "cost":  # which runs a query
        _query(check, plan)


_BY_CLIENT = "Anyone can COPY to stdout or from stdin. psql's \\copy command also works for anyone."


def _write_files(check: Checker, plan: plans.CopyToFiles) -> None:
    _query(check, plan)
    if plan.files.aws is not None:
        _use(check, (plan.files.aws,))
        return
    _need_files(check, "pg_write_server_files", "COPY to a file", hint=_BY_CLIENT)


def _read_files(check: Checker, plan: plans.CopyFromFiles) -> None:
    if plan.files.aws is not None:
        _use(check, (plan.files.aws,))
        return
    _need_files(check, "pg_read_server_files", "COPY from a file", hint=_BY_CLIENT)


def _need_files(check: Checker, role: str, what: str, hint: str | None = None) -> None:
    if not may_act_as(check.state, check.role, role):
        raise InsufficientPrivilege(
            f"must be superuser or have privileges of the {role} role to {what}", hint=hint
        )


RULES: Mapping[type, Rule] = {
    plans.Select: _query,
    plans.Insert: _query,
    plans.Update: _query,
    plans.Delete: _query,
    plans.Merge: _query,
    plans.WithChanges: _query,
    plans.Subscribe: _query,
    plans.CopyTo: _query,
    plans.CopyToFiles: _write_files,
    plans.CopyFrom: _nothing,
    plans.CopyFromFiles: _read_files,
    plans.CopyChange: _nothing,  # its statement is checked when it runs
    plans.Explain: _explain,
    plans.ExplainAnalyze: _query,
    plans.ExplainChange: _nothing,
    plans.ExplainFreshness: _explain_object,
    plans.ExplainMaintained: _explain_object,
    plans.ExplainOperators: _explain_object,
    plans.ShowCreate: _show_create,
    plans.ShowCreateAll: _nothing,  # definitions are shown to everybody, as by pg_get_viewdef
    plans.LockTable: _nothing,
    plans.SetConstraints: _nothing,
    plans.RefreshView: _refresh,
    plans.ExplainSinkSchema: _explain_sink,
    plans.WaitForSinks: _nothing,  # states of sinks are shown to everybody
    plans.CreateDatabase: _attribute("create_db", "create database"),
    plans.CreateSchema: _schema,
    plans.CreateTable: _table,
    plans.CreateTableAs: _table_as,
    plans.CreatePolicy: _policy,
    plans.AlterPolicy: _policy,
    plans.DropPolicy: _policy,
    plans.CommentPolicy: _policy,
    plans.SetRowSecurity: _policy,
    plans.CreateSecret: _named,
    plans.CreateConnection: _named,
    plans.AlterConnection: _alter_connection,
    plans.CreateSource: _source,
    plans.CreateSourceTable: _source_table,
    plans.AddSourceTables: _source_tables,
    plans.DropSourceTables: _alter_source,
    plans.RefreshSourceTables: _alter_source,
    plans.AlterSource: _alter_options,
    plans.AlterSink: _alter_options,
    plans.SetSinkFrom: _alter_options,
    plans.ValidateConnection: _validate,
    plans.CreateSink: _sink,
    plans.CreateMetric: _metric,
    plans.AlterSecret: _alter_secret,
    plans.CreateEnum: _named,
    plans.CreateDomain: _type,
    plans.CreateFunction: _function,
    plans.DropFunction: _drop_function,
    plans.AlterFunction: _alter_function,
    plans.CreateStructured: _type,
    plans.AlterEnum: _alter_enum,
    plans.CreateSequence: _sequence,
    plans.CreateView: _view,
    plans.CreateMaterializedView: _view,
    plans.CreateIndex: _index,
    plans.CreateSubscription: _named,
    plans.CreateCluster: clusters.create_cluster,
    plans.CreateClusterReplica: clusters.replica,
    plans.AlterCluster: clusters.alter_cluster,
    plans.Swap: _swap,
    plans.SetCluster: clusters.set_cluster,
    plans.AlterTable: _alter_table,
    plans.AlterSequence: _alter_sequence,
    plans.Advance: _advance,
    plans.Rename: _rename,
    plans.RenameViewColumn: _own,
    plans.SetOwner: _set_owner,
    plans.SetSchema: _set_schema,
    plans.LimitMemory: _own,
    plans.SetSecurityInvoker: _own,
    plans.Retain: _own,
    plans.SetErrorPolicy: _own,
    plans.Comment: _comment,
    plans.Drop: _drop,
    plans.Truncate: _truncate,
    plans.CreateRole: _nothing,  # what is granted, and to whom, is decided by who grants it
    plans.AlterRole: _nothing,
    plans.DropRole: _nothing,
    plans.CreateToken: _nothing,  # who may let others be a role is decided by `catalog/tokens.py`
    plans.DropToken: _nothing,
    plans.RenameRole: _nothing,
    plans.SetRoleSetting: _nothing,
    plans.CreateNetworkPolicy: _attribute("create_network_policy", "create network policy"),
    plans.AlterNetworkPolicy: _alter_network_policy,
    plans.AlterSystem: _nothing,  # the statement asks for a superuser itself
    plans.GrantRoles: _nothing,
    plans.GrantRights: _nothing,
    plans.AlterDefaultRights: _nothing,
    plans.ChangeOwned: _nothing,
    plans.Begin: _nothing,
    plans.Commit: _nothing,
    plans.Rollback: _nothing,
    plans.Savepoint: _nothing,
    plans.SetTransaction: _nothing,
    plans.SetVariable: _set_variable,
    plans.ShowVariable: _show_variable,
    plans.ResetVariable: _set_variable,
    plans.Discard: _nothing,
    plans.Maintain: _maintain,
    plans.Prepare: _nothing,  # its statement is checked when it runs
    plans.Execute: _nothing,  # likewise
    plans.Deallocate: _nothing,
    plans.Listen: _nothing,
    plans.Notify: _nothing,
    plans.Declare: _query,
    plans.Fetch: _nothing,  # the cursor was checked when it was declared
    plans.CloseCursor: _nothing,
}
