"""Notices of the server are records of the log."""

import logging
from types import SimpleNamespace

import pytest

from foreshore.embedded.notices import log_notice


@pytest.mark.parametrize(
    ("severity", "hint", "expected"),
    [
        ("NOTICE", None, (logging.INFO, "it is so")),
        ("WARNING", "Do that.", (logging.WARNING, "it is so (Do that.)")),
        ("DEBUG", None, (logging.INFO, "it is so")),
    ],
)
def test_a_notice_is_logged(
    caplog: pytest.LogCaptureFixture, severity: str, hint: str | None, expected: tuple[int, str]
) -> None:
    caplog.set_level(logging.INFO, "foreshore.notices")
    log_notice(None, SimpleNamespace(severity_en=severity, message="it is so", hint=hint))
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [expected]
