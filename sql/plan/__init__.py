"""What a statement means, planned: the face that `sql` shows to the adapter.

`plan_statement` (sql/planner.py) gives one of these for each parsed statement. A plan is untimed
and pure: it names collections by `GlobalId`, holds lowered and optimised relations, and may hold
`Parameter` and `Environment` scalars that the adapter replaces when it runs it.

    query         what reads and follows, and what all plans share
    changes       what changes rows
    definitions   what makes, alters and drops what the catalog holds
    session       what is about the session and its transactions
"""

# ruff: noqa: F403, F405

from typing import TypeAlias

from foreshore.sql.plan.changes import *
from foreshore.sql.plan.definitions import *
from foreshore.sql.plan.query import *
from foreshore.sql.plan.session import *
from foreshore.types import RelationDesc

Plan: TypeAlias = (
    Select
    | Subscribe
    | Explain
    | ExplainFreshness
    | Insert
    | Update
    | Delete
    | Merge
    | CopyFrom
    | CopyTo
    | CreateDatabase
    | CreateSchema
    | CreateTable
    | CreateTableAs
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
    | Drop
    | Rename
    | Retain
    | Comment
    | ShowCreate
    | SetVariable
    | ShowVariable
    | ResetVariable
    | Begin
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
    | Unlisten
    | Discard
    | Maintain
)


def result_desc(plan: Plan) -> RelationDesc | None:
    """Return the columns of the rows that running `plan` gives, None where it gives none.

    FETCH and EXECUTE depend on what they name; the session knows.
    """
    match plan:
        case Select(desc=desc):
            return desc
        case Subscribe(desc=desc) | ShowVariable(desc=desc) | ShowCreate(desc=desc):
            return desc
        case (
            Insert(returning=returning)
            | Update(returning=returning)
            | Delete(returning=returning)
            | Merge(returning=returning)
        ):
            return returning.desc if returning is not None else None
        case Explain():
            return EXPLAIN_DESC
        case ExplainFreshness():
            return FRESHNESS_DESC
        case _:
            return None
