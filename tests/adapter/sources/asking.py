"""Functions over relations in tests. Each call is a line in a file, which tells how often it was.

No function answers twice the same, so an answer that was computed again would be another one.
"""

import asyncio
import json
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

GATE = asyncio.Event()
_WRITING = threading.Lock()


def _note(calls: str, what: Any) -> None:
    with _WRITING, Path(calls).open("a") as file:
        file.write(json.dumps(what) + "\n")


def answer(row: dict[str, Any], calls: str) -> str:
    """Return something new each time."""
    _note(calls, row["n"])
    return uuid.uuid4().hex


async def slowly(row: dict[str, Any], calls: str) -> dict[str, Any]:
    """Return two results, after a moment."""
    _note(calls, row["n"])
    await asyncio.sleep(0.002)
    return {"answer": uuid.uuid4().hex, "length": len(row["text"] or "")}


def together(rows: pa.Table, calls: str) -> list[str]:
    """Answer many rows at once."""
    _note(calls, rows.column("n").to_pylist())
    return [uuid.uuid4().hex for _ in range(rows.num_rows)]


async def picky(row: dict[str, Any], calls: str) -> int | str:
    """Fail for each third row, give a wrong value for each fifth, and hang for the seventh."""
    _note(calls, row["n"])
    if row["n"] == 7:
        await asyncio.sleep(3600)
    if row["n"] % 3 == 0:
        raise ValueError(f"not {row['n']}")
    return "x" if row["n"] % 5 == 0 else row["n"] + 1


async def gated(row: dict[str, Any], calls: str) -> int:
    """Answer when the gate is open."""
    _note(calls, row["n"])
    await GATE.wait()
    return int(row["n"])


def kinds(row: dict[str, Any]) -> str:
    """Return the types of the values."""
    return " ".join(type(value).__name__ for value in row.values())
