"""Plans: the interface between `sql` and the adapter.

`plan_statement` (sql/planner.py) returns one plan for each parsed statement. A plan has no times
and no side effects: it names collections by `GlobalId`, holds lowered and optimised relations, and
may hold `Parameter` and `Environment` scalars that the adapter replaces at execution.

    query         queries and SUBSCRIBE, and types that all plans share
    changes       changes of rows
    definitions   DDL
    session       the session and its transactions
"""

# ruff: noqa: F403, F405

from typing import TypeAlias

from foreshore.sql.plan.changes import *
from foreshore.sql.plan.connections import *
from foreshore.sql.plan.definitions import *
from foreshore.sql.plan.metrics import *
from foreshore.sql.plan.network import *
from foreshore.sql.plan.policies import *
from foreshore.sql.plan.query import *
from foreshore.sql.plan.roles import *
from foreshore.sql.plan.secrets import *
from foreshore.sql.plan.session import *
from foreshore.sql.plan.sinks import *
from foreshore.sql.plan.sources import *
from foreshore.types import RelationDesc

Plan: TypeAlias = (
    Select
    | Subscribe
    | Explain
    | ExplainAnalyze
    | ExplainChange
    | ExplainFreshness
    | ExplainMaintained
    | ExplainOperators
    | Insert
    | Update
    | Delete
    | Merge
    | WithChanges
    | CopyFrom
    | CopyFromFiles
    | CopyTo
    | CopyToFiles
    | CopyChange
    | CreateDatabase
    | CreateSchema
    | CreateTable
    | CreateTableAs
    | CreateEnum
    | AlterEnum
    | CreateStructured
    | CreateDomain
    | CreateFunction
    | DropFunction
    | AlterFunction
    | CreatePolicy
    | AlterPolicy
    | DropPolicy
    | CommentPolicy
    | SetRowSecurity
    | CreateSecret
    | AlterSecret
    | CreateConnection
    | AlterConnection
    | CreateSink
    | CreateMetric
    | CreateSource
    | CreateSourceTable
    | AddSourceTables
    | DropSourceTables
    | RefreshSourceTables
    | AlterSource
    | AlterSink
    | SetSinkFrom
    | ValidateConnection
    | CreateSequence
    | AlterSequence
    | AlterTable
    | Truncate
    | LockTable
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | CreateSubscription
    | Advance
    | CreateCluster
    | CreateClusterReplica
    | AlterCluster
    | Swap
    | SetCluster
    | SetOwner
    | CreateRole
    | CreateToken
    | DropToken
    | AlterRole
    | RenameRole
    | SetRoleSetting
    | AlterSystem
    | CreateNetworkPolicy
    | AlterNetworkPolicy
    | DropRole
    | GrantRoles
    | GrantRights
    | AlterDefaultRights
    | ChangeOwned
    | SetSchema
    | Drop
    | Rename
    | RenameViewColumn
    | LimitMemory
    | SetErrorPolicy
    | SetSecurityInvoker
    | Retain
    | Comment
    | ShowCreate
    | ShowCreateAll
    | SetVariable
    | ShowVariable
    | ResetVariable
    | Begin
    | SetConstraints
    | SetTransaction
    | Commit
    | Rollback
    | Savepoint
    | Prepare
    | Execute
    | Deallocate
    | Declare
    | Fetch
    | CloseCursor
    | Listen
    | Notify
    | Discard
    | Maintain
    | RefreshView
    | WaitForSinks
    | ExplainSinkSchema
)


def result_desc(plan: Plan) -> RelationDesc | None:
    """Return the columns of the rows that `plan` returns, or None if it returns none.

    FETCH and EXECUTE depend on the cursor or statement they name; the session resolves those.
    """
    match plan:
        case Select(desc=desc):
            return desc
        case WithChanges(main=main):
            return result_desc(main)
        case Subscribe(desc=desc) | ShowVariable(desc=desc):
            return desc
        case ShowCreate(desc=desc) | ShowCreateAll(desc=desc):
            return desc
        case (
            Insert(returning=returning)
            | Update(returning=returning)
            | Delete(returning=returning)
            | Merge(returning=returning)
        ):
            return returning.desc if returning is not None else None
        case ExplainChange():
            return EXPLAIN_DESC
        case ExplainFreshness():
            return FRESHNESS_DESC
        case ExplainSinkSchema():
            return SCHEMA_DESC
        case Explain() | ExplainMaintained() | ExplainAnalyze() | ExplainOperators():
            return plan.desc
        case CreateToken():
            return plan.desc
        case _:
            return None
