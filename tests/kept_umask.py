"""The umask of the tests' process, which commands that run in it change for good."""

import contextlib
import os
from collections.abc import Iterator

from foreshore.processes import file_modes


@contextlib.contextmanager
def kept_umask() -> Iterator[None]:
    """Undo in the end what a command has done to the umask."""
    before, operators = os.umask(0o077), file_modes.operators_umask()
    os.umask(before)
    try:
        yield
    finally:
        os.umask(before)
        file_modes._operators = operators
