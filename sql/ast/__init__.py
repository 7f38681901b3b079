"""The syntax tree of a statement, before names are resolved.

There is one class for each production of PostgreSQL's grammar that binding distinguishes. `at` is
the offset of the token to which PostgreSQL's error position would point.

    expressions   expressions
    query         queries
    changes       statements that read, subscribe to or change rows
    definitions   DDL
    session       statements about the session, its transactions, and SHOW
    sinks         statements about sinks
    sources       statements about sources

Import the package and write `ast.Select`.
"""

# ruff: noqa: F403, F405

from typing import TypeAlias

from foreshore.sql.ast.changes import *
from foreshore.sql.ast.connections import *
from foreshore.sql.ast.definitions import *
from foreshore.sql.ast.expressions import *
from foreshore.sql.ast.functions import *
from foreshore.sql.ast.metrics import *
from foreshore.sql.ast.network import *
from foreshore.sql.ast.policies import *
from foreshore.sql.ast.query import *
from foreshore.sql.ast.roles import *
from foreshore.sql.ast.secrets import *
from foreshore.sql.ast.session import *
from foreshore.sql.ast.sinks import *
from foreshore.sql.ast.sources import *
from foreshore.sql.ast.upkeep import *
from foreshore.sql.ast.watermarks import *

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
    | CreateEnumStatement
    | AlterEnumStatement
    | CreateStructuredStatement
    | CreateDomainStatement
    | CreateFunctionStatement
    | DropFunctionStatement
    | AlterFunctionStatement
    | CreatePolicyStatement
    | AlterPolicyStatement
    | DropPolicyStatement
    | CommentPolicyStatement
    | RowSecurityStatement
    | CreateSecretStatement
    | CreateConnectionStatement
    | AlterConnectionStatement
    | CreateSinkStatement
    | CreateMetricStatement
    | CreateSourceStatement
    | CreateSourceTableStatement
    | AddSourceTablesStatement
    | DropSourceTablesStatement
    | RefreshSourceTablesStatement
    | AlterOptionsStatement
    | SetSinkFromStatement
    | ValidateConnectionStatement
    | AlterSecretStatement
    | CreateSequenceStatement
    | AlterSequenceStatement
    | CreateViewStatement
    | RefreshViewStatement
    | VerifyViewStatement
    | WaitForSinksStatement
    | CreateIndexStatement
    | CreateNamespaceStatement
    | CreateClusterStatement
    | CreateReplicaStatement
    | AlterClusterStatement
    | SwapStatement
    | SetClusterStatement
    | OwnerStatement
    | CreateRoleStatement
    | CreateTokenStatement
    | DropTokenStatement
    | AlterRoleStatement
    | RenameRoleStatement
    | RoleSettingStatement
    | AlterSystemStatement
    | NetworkPolicyStatement
    | DropRoleStatement
    | GrantRoleStatement
    | GrantStatement
    | DefaultPrivilegesStatement
    | OwnedStatement
    | SetSchemaStatement
    | DropStatement
    | RenameStatement
    | RenameColumnStatement
    | ErrorPolicyStatement
    | LimitMemoryStatement
    | SecurityInvokerStatement
    | RetainStatement
    | CommentStatement
    | ShowStatement
    | ShowCreateStatement
    | ShowCreateAllStatement
    | SetStatement
    | SetConstraintsStatement
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
    | ListenStatement
    | NotifyStatement
    | DiscardStatement
    | MaintenanceStatement
    | Unsupported
)
