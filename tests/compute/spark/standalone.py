"""A standalone cluster of Spark for tests, whose processes are killed and started again."""

import socket
import subprocess
from pathlib import Path
from typing import Self

from foreshore.compute.spark.standalone import command_of
from tests.harness import free_port, until


class Standalone:
    """A master and workers of one core each; files are below `directory`."""

    def __init__(self, directory: Path, workers: int, worker_mb: int = 700) -> None:
        self._directory = directory
        self._worker_mb = worker_mb
        self._port = free_port()
        self._workers = workers
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._start("master")
        for worker in self.workers:
            self._start(worker)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running.values()):
            process.terminate()
            process.wait()

    @property
    def url(self) -> str:
        """The address of the master."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def workers(self) -> list[str]:
        """The names of the workers."""
        return [f"worker{number}" for number in range(self._workers)]

    @property
    def processes(self) -> list[int]:
        """The master and the workers, below which executors are."""
        return [process.pid for process in self._running.values()]

    def executors(self) -> list[int]:
        """Return the JVMs of executors, whose work is in the directory."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command = (path / "cmdline").read_bytes()
                place = str((path / "cwd").resolve())
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command and str(self._directory) in place:
                found.append(int(path.name))
        return found

    def kill_and_start(self, name: str) -> None:
        """Kill the master, or a worker with its executors, and start it as a supervisor would."""
        self._running[name].kill()
        self._running[name].wait()
        self._start(name)

    def _start(self, name: str) -> None:
        if name == "master":
            command, environment = command_of("master", ("--port", str(self._port)))
        else:
            place = str(self._directory / name)
            own: tuple[str, ...] = ("--cores", "1", "--memory", f"{self._worker_mb}m")
            own += ("--work-dir", place, self.url)
            command, environment = command_of("worker", own)
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        if name == "master":
            until(self._listens, "the master listens", 120)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
