"""Kernels get ready: compiled in the background, loaded when the first dataflow needs them.

Loaded kernels take 60 MB; compiling them takes 30 s of processor time and 200 MB more for each
process. So an engine that starts loads nothing. Where something has to be compiled, which is so
once after an installation, processes of their own do it, side by side, while this one works. A
thread that calls a kernel that is not there yet asks them for it and waits for it alone
(`kernels/jit.py`, the gate). Another thread loads those that are there (`kernels/compiled.py`).
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress

from foreshore.compute.flow.kernels import compiled
from foreshore.compute.flow.kernels.jit import GATE
from foreshore.processes.child_environment import COMPUTE, child_environment, private_home

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "foreshore.compute.flow.kernel_compiler")
MOST_PROCESSES = 4
MOST_SECONDS = 300.0  # that a call waits for its kernel, after which its thread compiles it

Process = subprocess.Popen[bytes]


class Compilation:
    """Processes that compile the kernels, if any is not in the cache. Any thread may call it."""

    def __init__(self) -> None:
        self._processes: list[Process] = []
        self._running = 0
        self._done: set[str] = set()
        self._requested: set[str] = set()
        self._changed = threading.Condition()  # of all these
        self._loads = False

    def begin(self) -> None:
        """Start the processes if they are needed; one that cannot start is no error."""
        if compiled.is_complete() or not GATE.close(self._wait):
            return
        logger.warning("kernels of dataflows are compiled, once; first views wait for some of them")
        with self._changed:
            for _ in range(min(MOST_PROCESSES, os.cpu_count() or 1)):
                self._start()
            if not self._processes:
                GATE.open()

    def _start(self) -> None:
        try:
            process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=child_environment(private_home(), COMPUTE),
            )
        except OSError as error:
            logger.warning("kernels are compiled when they are called: %s", error)
            return
        self._processes.append(process)
        self._running += 1
        threading.Thread(target=self._follow, args=(process,), name="compiler", daemon=True).start()

    def _follow(self, process: Process) -> None:
        """Note which kernels a process finds in the cache, or compiles, until it ends."""
        assert process.stdout is not None
        for line in process.stdout:
            with self._changed:
                self._done.add(line.decode().strip())
                self._changed.notify_all()
        process.wait()
        with self._changed:
            self._running -= 1
            if not self._running:
                GATE.open()
            self._changed.notify_all()

    def _wait(self, name: str) -> None:
        """Wait until a kernel is in the cache, or nobody compiles it."""
        with self._changed:
            if name not in self._done | self._requested:
                self._requested.add(name)
                self._request(name, self._processes)
            if not self._changed.wait_for(
                lambda: name in self._done or not self._running, MOST_SECONDS
            ):
                logger.warning("the compilation of kernel %s does not end", name)

    @staticmethod
    def _request(name: str, processes: Iterable[Process]) -> None:
        for each in processes:
            assert each.stdin is not None
            with suppress(OSError):  # it has ended
                each.stdin.write(f"{name}\n".encode())
                each.stdin.flush()

    def load(self) -> None:
        """Have the kernels loaded in this process, each as soon as it is there."""
        with self._changed:
            begins, self._loads = not self._loads, True
        if begins:
            compiled.load_later()

    def finish(self) -> None:
        """Wait until the processes have ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def close(self) -> None:
        """End the processes."""
        with self._changed:
            processes = list(self._processes)
        for each in processes:
            each.kill()
            each.wait()
