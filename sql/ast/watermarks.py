"""Syntax of watermarks."""

from foreshore.sql.ast.expressions import Syntax


class WatermarkDefinition(Syntax):
    """WATERMARK FOR column AS column [- INTERVAL 'delay'], at the offset `at`."""

    column: str
    delay: str | None
    at: int
