"""Which of the project's files a statement enters, from its text to its answer.

    python -m tests.files_entered              the files of an INSERT and of a SELECT
    python -m tests.files_entered 'SQL' ...    those of other statements over t (k int, v text)

A file is entered when a function of it is called on any thread while the statement runs by itself,
outside of a transaction block. The statement has run before, so its plan is known, as that of a
driver's prepared statement is. It runs several times, and only what it enters each time counts: what
the environment does meanwhile falls out. Its timers stand still while a statement runs, as on a slow
machine one of them would expire each time.
"""

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import foreshore.adapter.environment as anchor
from foreshore.adapter.client import Rows
from tests.adapter.harness import TestEnvironment

ROOT = Path(anchor.__file__).parent.parent
LAYERS = ("server", "adapter", "catalog", "compute", "sql", "storage", "foreshore")

SETUP = (
    "CREATE TABLE t (k int, v text)",
    "CREATE TABLE keyed (k int PRIMARY KEY, v text)",
    "INSERT INTO keyed VALUES (1, 'a'), (2, 'b')",
)
INSERT = "INSERT INTO t VALUES (1, 'a')"
SELECT = "SELECT v FROM keyed WHERE k = 1"
WARM, COUNTED = 3, 5


class Calls:
    """Notes the files of functions that are called, while `noting`."""

    def __init__(self) -> None:
        self.noting = False
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call: a profile function, of threads that are started from now on."""
        if self.noting and event == "call":
            self.files.add(frame.f_code.co_filename)

    def taken(self) -> frozenset[str]:
        """Return the project's files that were noted since the last time, as paths in it."""
        files, self.files = self.files, set()
        paths = (Path(file) for file in files)
        inner = (path.relative_to(ROOT) for path in paths if path.is_relative_to(ROOT))
        return frozenset(str(path) for path in inner if path.parts[0] in LAYERS)


async def entered(statements: Sequence[str], directory: Path) -> list[frozenset[str]]:
    """Return the files that each statement enters."""
    calls = Calls()
    threading.setprofile(calls)
    env = TestEnvironment(directory)
    await env.open()
    try:
        await env.ran("s", *SETUP)
        return [await _entered_by(env, sql, calls) for sql in statements]
    finally:
        threading.setprofile(None)
        await env.close()


async def _entered_by(env: TestEnvironment, sql: str, calls: Calls) -> frozenset[str]:
    for _ in range(WARM):
        await _run(env, sql)
    found = await _calls_of(env, sql, calls)
    for _ in range(1, COUNTED):
        found &= await _calls_of(env, sql, calls)
    return found


async def _calls_of(env: TestEnvironment, sql: str, calls: Calls) -> frozenset[str]:
    """Return the files that are entered while the statement runs once."""
    loop = asyncio.get_running_loop()
    with patch.object(loop, "time", return_value=loop.time()):
        calls.noting = True
        sys.setprofile(calls)
        try:
            await _run(env, sql)
        finally:
            sys.setprofile(None)
            calls.noting = False
    return calls.taken()


async def _run(env: TestEnvironment, sql: str) -> None:
    session = await env.session("s")
    async for execution in session.simple(sql):
        if isinstance(execution, Rows):
            async for _ in execution.batches:
                pass


def main() -> None:
    """Print the files of each statement, by layer."""
    statements = sys.argv[1:] or [INSERT, SELECT]
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(entered(statements, Path(directory)))
    for sql, files in zip(statements, found, strict=True):
        counts = Counter(Path(file).parts[0] for file in files)
        by_layer = ", ".join(f"{layer} {counts[layer]}" for layer in LAYERS if counts[layer])
        print(f"{len(files)} files ({by_layer}): {sql}", *sorted(files), sep="\n    ")


if __name__ == "__main__":
    main()
