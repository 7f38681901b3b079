"""The syntax tree: what a statement says, before any name in it means anything.

One class for each production of PostgreSQL's grammar that binding tells apart. `at` is the offset
in the text of the token that PostgreSQL would point to in an error.

    query         queries, and the expressions in them
    changes       statements that read, follow or change rows
    definitions   statements that make, alter and drop what the catalog holds
    session       statements about the session, its transactions, and what the catalog shows

They are one vocabulary, used by one name: `ast.Select`.
"""

# ruff: noqa: F403, F405

from typing import TypeAlias

from foreshore.sql.ast.changes import *
from foreshore.sql.ast.definitions import *
from foreshore.sql.ast.query import *
from foreshore.sql.ast.session import *

StatementSyntax: TypeAlias = (
    SelectStatement
    | SubscribeStatement
    | CreateSubscriptionStatement
    | AdvanceStatement
    | ExplainStatement
    | InsertStatement
    | UpdateStatement
    | DeleteStatement
    | MergeStatement
    | CopyStatement
    | CreateTableStatement
    | CreateTableAsStatement
    | AlterTableStatement
    | CreateUniqueIndexStatement
    | TruncateStatement
    | LockTableStatement
    | CreateSequenceStatement
    | AlterSequenceStatement
    | CreateViewStatement
    | CreateIndexStatement
    | CreateNamespaceStatement
    | CreateClusterStatement
    | CreateReplicaStatement
    | DropStatement
    | RenameStatement
    | RetainStatement
    | CommentStatement
    | ShowStatement
    | ShowCreateStatement
    | SetStatement
    | SetZoneStatement
    | ShowVariableStatement
    | ResetStatement
    | TransactionStatement
    | SavepointStatement
    | PrepareStatement
    | ExecuteStatement
    | DeallocateStatement
    | DeclareStatement
    | FetchStatement
    | CloseStatement
    | UnlistenStatement
    | DiscardStatement
    | MaintenanceStatement
    | Unsupported
)
