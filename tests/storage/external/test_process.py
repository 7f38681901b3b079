"""A process of sources or sinks listens until its standard input ends."""

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from foreshore.storage.external import process


class Connected(Exception):
    """The socket could be reached."""


class _Serving:
    def deliver(self, command: Any, tables: Any, send: Any) -> None:
        raise AssertionError(command)

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_listens_after_a_collection(
    new_loop: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def connect() -> None:
        gc.collect()
        await asyncio.open_unix_connection(str(tmp_path / "s"))
        raise Connected

    monkeypatch.setattr(process, "standard_input_ends", connect)
    served = process.serve(f"unix:{tmp_path / 's'}", _Serving, int, "secret", tmp_path)
    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(Connected):
        runner.run(served)
