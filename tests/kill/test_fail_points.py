"""The process ends at each fail point between two durable steps; acknowledged writes survive."""

from __future__ import annotations

import ast
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from foreshore import failpoint
from tests.harness import ROOT, Server, until
from tests.kill.test_sigkill import WRITERS, Definer, Reader, Writer, check, prepare

ONCE = {"epoch.taken", "log.claimed", "fence.raised", "segment.listed"}  # in a process
SERVER = sorted(point for point in failpoint.POINTS if not point.startswith("checkpoint."))
LAYERS = ("foreshore", "storage", "adapter", "catalog", "compute", "server")


def test_every_fail_point_is_in_the_code() -> None:
    found = set()
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "reached"
                ):
                    assert isinstance(node.args[0], ast.Constant), path
                    found.add(node.args[0].value)
    assert found == set(failpoint.POINTS)


def run_on(server: Server, run: Callable[[str], None]) -> None:
    """Restart a client until the server, which may not listen yet, has ended."""
    assert server.process is not None
    while server.process.poll() is None:
        run(server.url)
        time.sleep(0.02)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("many", [3, pytest.param(len(SERVER), marks=pytest.mark.slow)])
def test_end_at_fail_point_loses_no_acknowledged_write(data_dir: Path, many: int) -> None:
    choose = random.Random(20130102)
    # Small segments, so that batches are made and merged all the time.
    server = Server(data_dir, ("--segment-bytes", "4096")).start()
    try:
        prepare(server)
        writers = [Writer(number) for number in range(WRITERS)]
        reader, definer = Reader(), Definer()
        now = check(server, writers, definer, 0)
        for point in choose.sample(SERVER, many):
            server.kill()
            count = 1 if point in ONCE else choose.randrange(1, 4)
            server.environment = {failpoint.VARIABLE: f"{point}:{count}"}
            server.spawn()
            runs = [*(writer.run for writer in writers), reader.run, definer.run]
            threads = [threading.Thread(target=run_on, args=(server, run)) for run in runs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive(), f"{point} was not reached"
            assert (reader.failure, definer.failure) == (None, None), point
            until(lambda: not server.processes(), "the replicas of the ended server end", 10)
            server.environment = {}
            server.start()
            try:
                now = check(server, writers, definer, max(now, reader.now))
            except AssertionError as error:
                raise AssertionError(f"after an end at {point}") from error
    finally:
        server.stop()
