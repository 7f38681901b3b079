"""The objects that a statement may change, as far as its plan says.

Every plan takes a stand here. What the changed objects name is in `catalog/references.py`, the list
by which each commit is checked: no statement has to say it again.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from foreshore.ids import GlobalId
from foreshore.item_view import Name
from foreshore.sql.plan import (
    AddSourceTables,
    Advance,
    AlterCluster,
    AlterConnection,
    AlterDefaultRights,
    AlterEnum,
    AlterFunction,
    AlterNetworkPolicy,
    AlterPolicy,
    AlterRole,
    AlterSecret,
    AlterSequence,
    AlterSink,
    AlterSource,
    AlterSystem,
    AlterTable,
    Begin,
    ChangeOwned,
    CloseCursor,
    Comment,
    CommentPolicy,
    Commit,
    CopyChange,
    CopyFrom,
    CopyFromFiles,
    CopyTo,
    CopyToFiles,
    CreateCluster,
    CreateClusterReplica,
    CreateConnection,
    CreateDatabase,
    CreateDomain,
    CreateEnum,
    CreateFunction,
    CreateIndex,
    CreateMaterializedView,
    CreateMetric,
    CreateNetworkPolicy,
    CreatePolicy,
    CreateRole,
    CreateSchema,
    CreateSecret,
    CreateSequence,
    CreateSink,
    CreateSource,
    CreateSourceTable,
    CreateStructured,
    CreateSubscription,
    CreateTable,
    CreateTableAs,
    CreateToken,
    CreateView,
    Deallocate,
    Declare,
    Delete,
    Discard,
    Drop,
    DropFunction,
    DropPolicy,
    DropRole,
    DropSourceTables,
    DropToken,
    Execute,
    Explain,
    ExplainAnalyze,
    ExplainChange,
    ExplainFreshness,
    ExplainMaintained,
    ExplainOperators,
    ExplainSinkSchema,
    Fetch,
    GrantRights,
    GrantRoles,
    Insert,
    LimitMemory,
    Listen,
    LockTable,
    Maintain,
    Merge,
    Notify,
    Plan,
    Prepare,
    RefreshSourceTables,
    RefreshView,
    Rename,
    RenameRole,
    RenameViewColumn,
    ResetVariable,
    Retain,
    Rollback,
    Savepoint,
    Select,
    SetCluster,
    SetConstraints,
    SetErrorPolicy,
    SetOwner,
    SetRoleSetting,
    SetRowSecurity,
    SetSchema,
    SetSecurityInvoker,
    SetSinkFrom,
    SetTransaction,
    SetVariable,
    ShowCreate,
    ShowCreateAll,
    ShowVariable,
    Subscribe,
    Swap,
    Truncate,
    Update,
    ValidateConnection,
    WaitForSinks,
    WithChanges,
)

_RELATIONS = frozenset(
    (
        "table",
        "view",
        "materialized view",
        "index",
        "sequence",
        "subscription",
        "source",
        "sink",
        "metric",
        "column",
        "constraint",
    )
)


@dataclass(frozen=True, slots=True)
class NewRelation:
    """A relation to create; `optional` if it may exist already."""

    name: Name
    optional: bool


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema to create, unless it exists."""

    database: str
    name: str


@dataclass(frozen=True, slots=True)
class NamedRelations:
    """Existing relations by their names."""

    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """Existing relations by their ids."""

    ids: tuple[GlobalId, ...]


@dataclass(frozen=True, slots=True)
class Permanent:
    """Objects that are never temporary."""


Changed: TypeAlias = NewRelation | NewSchema | NamedRelations | Items | Permanent


def changed_objects(plan: Plan) -> Changed | None:
    """Return the objects that running `plan` may change under the lock of the catalog, if any."""
    match plan:
        case CreateSchema(database=database, name=schema, if_not_exists=True):
            return NewSchema(database, schema)
        case (
            CreateTable(name=name, if_not_exists=optional)
            | CreateTableAs(definition=CreateTable(name=name), if_not_exists=optional)
            | CreateView(name=name, if_not_exists=optional)
            | CreateMaterializedView(name=name, if_not_exists=optional)
            | CreateSequence(name=name, if_not_exists=optional)
            | CreateSubscription(name=name, if_not_exists=optional)
        ):
            return NewRelation(name, optional)
        case (
            CreateIndex(on=id)
            | AlterTable(table=id)
            | AlterSequence(id=id)
            | CreatePolicy(table=id)
            | AlterPolicy(table=id)
            | DropPolicy(table=id)
            | CommentPolicy(table=id)
            | SetRowSecurity(table=id)
        ):
            return None if id is None else Items((id,))
        case Truncate(tables=ids, restart_identity=restarts):
            return Items(tuple(ids)) if restarts else None
        case Drop(kind=kind, names=names) if kind in _RELATIONS:
            return NamedRelations(tuple(names))
        case (
            Rename(kind=kind, name=name)
            | RenameViewColumn(kind=kind, name=name)
            | LimitMemory(kind=kind, name=name)
            | SetSecurityInvoker(kind=kind, name=name)
            | SetErrorPolicy(kind=kind, name=name)
            | Retain(kind=kind, name=name)
            | SetOwner(kind=kind, name=name)
            | SetSchema(kind=kind, name=name)
            | Comment(kind=kind, name=name)
        ) if kind in _RELATIONS:
            return NamedRelations((name,))
        case GrantRights(kind="table" | "sequence", names=names, in_schemas=False):
            return NamedRelations(tuple(names))
        case (
            CreateDatabase()
            | CreateSchema()
            | CreateCluster()
            | CreateClusterReplica()
            | CreateEnum()
            | AlterEnum()
            | CreateStructured()
            | CreateDomain()
            | CreateFunction()
            | DropFunction()
            | AlterFunction()
            | AlterCluster()
            | CreateSecret()
            | CreateSink()
            | CreateMetric()
            | CreateSource()
            | CreateSourceTable()
            | AddSourceTables()
            | DropSourceTables()
            | RefreshSourceTables()
            | AlterSource()
            | AlterSink()
            | SetSinkFrom()
            | CreateConnection()
            | AlterConnection()
            | AlterSecret()
            | Swap()
            | SetCluster()
            | Drop()
            | Rename()
            | RenameViewColumn()
            | LimitMemory()
            | SetSecurityInvoker()
            | SetErrorPolicy()
            | Retain()
            | SetOwner()
            | SetSchema()
            | Comment()
            | CreateRole()
            | RenameRole()
            | DropRole()
            | GrantRoles()
            | GrantRights()
            | AlterSystem()
            | CreateNetworkPolicy()
            | AlterNetworkPolicy()
        ):
            return Permanent()
        case (  # of a role's own: a role without rights may run them, and must not hold up others
            AlterRole()
            | SetRoleSetting()
            | AlterDefaultRights()
            | CreateToken()
            | DropToken()
            | ChangeOwned()
        ):
            return None  # a commit that would undo another's fails (`rebased`)
        case (
            Select()
            | Subscribe()
            | Explain()
            | ExplainAnalyze()
            | ExplainChange()
            | ExplainFreshness()
            | ExplainMaintained()
            | ExplainOperators()
            | ExplainSinkSchema()
            | Insert()
            | Update()
            | Delete()
            | Merge()
            | WithChanges()
            | CopyFrom()
            | CopyFromFiles()
            | CopyTo()
            | CopyToFiles()
            | CopyChange()
            | ValidateConnection()
            | LockTable()
            | Advance()
            | ShowCreate()
            | ShowCreateAll()
            | SetVariable()
            | ShowVariable()
            | ResetVariable()
            | Begin()
            | SetConstraints()
            | SetTransaction()
            | Commit()
            | Rollback()
            | Savepoint()
            | Prepare()
            | Execute()
            | Deallocate()
            | Declare()
            | Fetch()
            | CloseCursor()
            | Listen()
            | Notify()
            | Discard()
            | Maintain()
            | RefreshView()
            | WaitForSinks()
        ):
            return None
        case _:
            assert_never(plan)
