"""Background work, step by step: a step that fails is logged and ends nothing else."""

import logging
from collections.abc import Awaitable, Callable

from foreshore.errors import CollectionCorrupted, DatabaseError

logger = logging.getLogger(__name__)


async def goes_on(step: Callable[[], Awaitable[object]], what: str) -> bool:
    """Run `step`; return whether it can succeed later: not if what it reads is corrupted.

    A step that fails is logged as `what`, a clause that says what has not happened.
    """
    try:
        await step()
    except CollectionCorrupted as error:
        logger.warning("%s, and is not tried again: %s", what, error)
        return False
    except (DatabaseError, OSError) as error:
        logger.warning("%s: %s", what, error)
    except Exception:  # a defect, which must not end the server
        logger.exception(what)
    return True
