"""Processes tied to this one: each ends when this process ends, however that happens.

    java = start_tied(["java", ...], stdin=PIPE)

On Linux the kernel does it. A child asks for SIGKILL at its parent's death (PR_SET_PDEATHSIG), then
executes the program. So the tie holds from the program's first instruction and needs no code in it.
This file is the script for that step: code between fork and exec is not safe beside other threads.

The kernel counts the parent as dead when the *thread* that forked ends. So a thread of its own
starts the process and waits for its end.

Elsewhere the process is started without a tie and must watch its standard input.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

_PR_SET_PDEATHSIG = 1


def start_tied(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start `command`, as `Popen` does with `options`, and return it once it is tied.

    The process id is that of the program itself.
    """
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]
    started: Future[subprocess.Popen[bytes]] = Future()

    def start_and_wait() -> None:
        try:
            process = subprocess.Popen(command, **options)
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    threading.Thread(target=start_and_wait, name="tied process", daemon=True).start()
    return started.result()


def _tie_and_execute(parent: int, command: list[str]) -> None:
    """Ask for SIGKILL at the parent's death and become `command`, unless the parent is dead now."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() == parent:
        os.execv(command[0], command)


if __name__ == "__main__":
    _tie_and_execute(int(sys.argv[1]), sys.argv[2:])
