"""What the tests of hostile clients measure with finds what it is for."""

import os
import signal
from pathlib import Path

import pytest

from tests.hostile.bystander import bystanders, undisturbed


@pytest.mark.full
def test_server_that_stands_still_is_a_disturbance(tmp_path: Path) -> None:
    with bystanders(tmp_path / "data") as server:
        with undisturbed(server):
            pass
        assert server.process is not None
        pid = server.process.pid

        def stand_still() -> None:
            with undisturbed(server, p99_s=100.0):
                os.kill(pid, signal.SIGSTOP)
                try:
                    signal.sigtimedwait([], 4.0)
                finally:
                    os.kill(pid, signal.SIGCONT)

        with pytest.raises(AssertionError, match=r"max \d{3,}"):
            stand_still()
