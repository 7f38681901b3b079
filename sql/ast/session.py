"""Syntax of statements about the session, its transactions, and SHOW."""

from typing import Literal as OneOf

from foreshore.sql.ast.changes import SelectStatement, SubscribeStatement
from foreshore.sql.ast.expressions import Expression, Syntax, TypeName
from foreshore.sql.ast.query import TableRef

Direction = OneOf["forward", "backward", "absolute", "relative"]


class ShowStatement(Syntax):
    """SHOW objects."""

    what: str
    within: tuple[str, ...]  # FROM or IN
    like: str | None
    where: Expression | None
    at: int
    on: tuple[str, ...] = ()
    in_cluster: str | None = None


class ShowCreateStatement(Syntax):
    """SHOW [REDACTED] CREATE kind name."""

    kind: str
    name: TableRef
    redacted: bool = False  # without the constants of the statement


class ShowCreateAllStatement(Syntax):
    """SHOW CREATE ALL."""


class SetStatement(Syntax):
    """SET; empty values are TO DEFAULT."""

    name: str
    values: tuple[str, ...] | None
    local: bool


class SetConstraintsStatement(Syntax):
    """SET CONSTRAINTS; no `names` are ALL."""

    names: tuple[TableRef, ...]
    deferred: bool


class SetZoneStatement(Syntax):
    """SET TIME ZONE INTERVAL 'text' fields: an offset from UTC."""

    text: str
    fields: str | None
    local: bool
    at: int


class ShowVariableStatement(Syntax):
    """SHOW name."""

    name: str


class ResetStatement(Syntax):
    """RESET name, or ALL (None)."""

    name: str | None


class TransactionStatement(Syntax):
    """BEGIN, COMMIT, ROLLBACK, SET TRANSACTION and their variants."""

    kind: OneOf["begin", "start", "commit", "rollback", "set", "characteristics"]
    read_only: bool | None = None
    isolation: str | None = None
    chain: bool = False


class SavepointStatement(Syntax):
    """SAVEPOINT, RELEASE and ROLLBACK TO."""

    kind: OneOf["savepoint", "release", "rollback to"]
    name: str


class PrepareStatement(Syntax):
    """PREPARE; `start` is the offset of the prepared statement."""

    name: str
    types: tuple[TypeName, ...]
    start: int
    end: int


class ExecuteStatement(Syntax):
    """EXECUTE; the arguments stand in parentheses from the offset `start`."""

    name: str
    args: tuple[Expression, ...]
    start: int
    end: int


class DeallocateStatement(Syntax):
    """DEALLOCATE."""

    name: str | None


class DeclareStatement(Syntax):
    """DECLARE CURSOR; `options` are the words before CURSOR."""

    name: str
    hold: bool
    statement: SelectStatement | SubscribeStatement
    options: frozenset[str] = frozenset()


class FetchStatement(Syntax):
    """FETCH and MOVE; no `count` is ALL."""

    name: str
    count: int | None
    timeout: str | None
    move: bool
    direction: Direction = "forward"


class CloseStatement(Syntax):
    """CLOSE."""

    name: str | None


class ListenStatement(Syntax):
    """LISTEN, or UNLISTEN of a channel or of all (None)."""

    kind: OneOf["listen", "unlisten"]
    channel: str | None


class NotifyStatement(Syntax):
    """NOTIFY."""

    channel: str
    payload: str


class DiscardStatement(Syntax):
    """DISCARD."""

    what: str


class MaintenanceStatement(Syntax):
    """VACUUM, ANALYZE or CHECKPOINT; without `tables`, of all tables."""

    verb: OneOf["vacuum", "analyze", "checkpoint", "reindex"]
    tables: tuple[TableRef, ...]


class Unsupported(Syntax):
    """A statement of PostgreSQL that is not supported."""

    what: str
    at: int
