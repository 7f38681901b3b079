"""Notices of the server, as records of Python's logging: `logging.getLogger("foreshore.notices")`.

A NOTICE, such as that a statement waits for a view that is being filled, has the level INFO, a
WARNING that of the same name.
"""

import logging
from typing import Any

logger = logging.getLogger("foreshore.notices")


def log_notice(_connection: Any, notice: Any) -> None:
    """Log a message that the server has sent beside an answer."""
    level = logging.WARNING if notice.severity_en == "WARNING" else logging.INFO
    hint = f" ({notice.hint})" if notice.hint else ""
    logger.log(level, "%s%s", notice.message, hint)
