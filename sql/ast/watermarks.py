"""Syntax of watermarks."""

from foreshore.sql.ast.expressions import Syntax


class WatermarkDefinition(Syntax):
    """WATERMARK FOR column AS column [- INTERVAL 'delay'] [IDLE TIMEOUT INTERVAL 'idle'].

    It is at the offset `at`. A kept definition also has the relation of the clock's marks.
    """

    column: str
    delay: str | None
    at: int
    idle: str | None = None
    marks: str | None = None
