"""Errors: the message to the client, and the entry in the log."""

import errno
import logging
import os

import pytest

from foreshore.compute.peek import failure_of
from foreshore.errors import InternalError, UndefinedTable
from foreshore.server.connection import client_error
from tests.logged import logged_by


@pytest.mark.parametrize("error", [InternalError("negative multiplicity"), KeyError("u7")])
def test_unforeseen_error_is_xx000_and_logged_with_traceback(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise error
    except Exception as caught:
        told = client_error(caught)
    assert told.sqlstate == "XX000"
    (record,) = logged_by(caplog, "foreshore")
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert record.exc_info[2] is not None


def test_user_error_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = UndefinedTable('relation "t" does not exist')
    assert client_error(error) is error
    assert not logged_by(caplog, "foreshore")


@pytest.mark.parametrize(
    ("code", "sqlstate"), [(errno.ENOSPC, "53100"), (errno.EDQUOT, "53100"), (errno.EIO, "58030")]
)
def test_disk_fault_is_sent_with_its_sqlstate_and_logged(
    code: int, sqlstate: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = OSError(code, os.strerror(code))
    assert client_error(error).sqlstate == sqlstate
    assert failure_of(error).sqlstate == sqlstate  # as a replica tells it
    assert len(logged_by(caplog, "foreshore")) == 2
