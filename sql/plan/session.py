"""Plans of statements about the session and its transactions."""

from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.expr.ir import Scalar
from foreshore.ids import GlobalId
from foreshore.item_view import Name
from foreshore.sql.plan.query import ObjectKind, Select, Subscribe, WritePlan
from foreshore.types import RelationDesc, SqlType


@dataclass(frozen=True, slots=True)
class ShowCreate:
    kind: ObjectKind
    name: Name
    desc: RelationDesc
    redacted: bool = False  # without the constants of the statement


@dataclass(frozen=True, slots=True)
class ShowCreateAll:
    """SHOW CREATE ALL: the statements that make the objects of the session's database again."""

    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class SetVariable:
    """SET [SESSION | LOCAL] name = values; empty values are TO DEFAULT."""

    name: str
    values: tuple[str, ...] | None
    local: bool


@dataclass(frozen=True, slots=True)
class ShowVariable:
    name: str  # `all` for SHOW ALL
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class ResetVariable:
    name: str | None  # None: RESET ALL


@dataclass(frozen=True, slots=True)
class Begin:
    read_only: bool | None
    isolation: str | None
    started: bool = False  # by START TRANSACTION, which has a command tag of its own


@dataclass(frozen=True, slots=True)
class SetConstraints:
    """SET CONSTRAINTS; no `names` are ALL."""

    names: tuple[tuple[str, ...], ...]
    deferred: bool


@dataclass(frozen=True, slots=True)
class SetTransaction:
    read_only: bool | None
    isolation: str | None
    session: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    chain: bool = False


@dataclass(frozen=True, slots=True)
class Rollback:
    chain: bool = False


@dataclass(frozen=True, slots=True)
class Savepoint:
    """SAVEPOINT, RELEASE and ROLLBACK TO a savepoint."""

    kind: OneOf["savepoint", "release", "rollback to"]
    name: str


@dataclass(frozen=True, slots=True)
class Prepare:
    name: str
    parameters: tuple[SqlType, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Execute(WritePlan):
    """EXECUTE; `lookup` is the text of the arguments, where one is the name of an object."""

    name: str
    args: tuple[Scalar, ...]
    lookup: str | None = None
    offsets: tuple[int, ...] = ()  # of the arguments in the statement; none of those looked up


@dataclass(frozen=True, slots=True)
class Deallocate:
    name: str | None  # None: DEALLOCATE ALL


@dataclass(frozen=True, slots=True)
class Declare:
    name: str
    query: "Select | Subscribe"
    hold: bool
    scroll: bool | None = None  # None: neither SCROLL nor NO SCROLL
    binary: bool = False
    tables: "tuple[CursorTable, ...]" = ()
    hidden: int = 0  # the last columns, which are not shown: of keys

    @property
    def locks(self) -> bool:
        """Whether its rows are locked, as by FOR UPDATE."""
        return isinstance(self.query, Select) and self.query.locking is not None


@dataclass(frozen=True, slots=True)
class CursorTable:
    """A table whose row UPDATE or DELETE ... WHERE CURRENT OF a cursor may change.

    The `key` columns of the table are at `places` of the cursor's rows.
    """

    table: GlobalId
    key: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    name: str
    count: int | None  # None: ALL
    timeout_ms: int | None  # FETCH ... WITH (TIMEOUT), for cursors over SUBSCRIBE
    move: bool = False
    direction: OneOf["forward", "backward", "absolute", "relative"] = "forward"


@dataclass(frozen=True, slots=True)
class CloseCursor:
    name: str | None  # None: CLOSE ALL


@dataclass(frozen=True, slots=True)
class Listen:
    """LISTEN, or UNLISTEN of a channel or of all (None)."""

    kind: OneOf["listen", "unlisten"]
    channel: str | None


@dataclass(frozen=True, slots=True)
class Notify:
    channel: str
    payload: str


@dataclass(frozen=True, slots=True)
class Discard:
    what: OneOf["all", "plans", "sequences", "temp"]


@dataclass(frozen=True, slots=True)
class RefreshView:
    """REFRESH MATERIALIZED VIEW, with or without CONCURRENTLY."""

    name: Name


@dataclass(frozen=True, slots=True)
class Maintain:
    """VACUUM and CHECKPOINT, which compact storage; ANALYZE and REINDEX, without effect."""

    verb: OneOf["vacuum", "analyze", "checkpoint", "reindex"]
    skipped: tuple[str, ...]  # names of relations that are not tables
    rebuilt: tuple[GlobalId, ...] = ()  # of REINDEX: tables and indexes
    tables: tuple[GlobalId, ...] = ()  # that VACUUM or ANALYZE names
