"""Options of what is kept up to date: how long history is kept, how much memory, which engine."""

from foreshore.sql.ast.expressions import Syntax
from foreshore.sql.ast.query import TableRef


class Retain(Syntax):
    """RETAIN HISTORY FOR an interval's text."""

    interval: str
    at: int


class ErrorPolicyStatement(Syntax):
    """ALTER MATERIALIZED VIEW ... SET (ON ERROR = ...), or RESET, which is FAIL."""

    name: TableRef
    skips: bool
    if_exists: bool


class MemoryLimit(Syntax):
    """MEMORY LIMIT and a size's text."""

    size: str
    at: int


class Hydrate(Syntax):
    """HYDRATE and the name of an engine, or auto."""

    mode: str
    at: int
