"""Log records of the product, without those of asyncio."""

import logging

import pytest


def logged_by(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    """Return the records of a logger, such as `foreshore.server`, and of those below it.

    asyncio logs too: of tasks of other tests that are only then collected as garbage.
    """
    return [each for each in caplog.records if f"{each.name}.".startswith(f"{name}.")]
