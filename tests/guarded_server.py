"""`foreshore`, with the steps of its event loop's tasks measured from when it is ready."""

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from foreshore.server import main

sys.path.append(str(Path(__file__).parent.parent))

from tests.loop_guard import MARK, measure_tasks


def report(name: str, seconds: float) -> None:
    """Say in the server's log which step was slow."""
    print(f"{MARK}{seconds:.3f} s in {name}", file=sys.stderr, flush=True)


def measured_loop() -> asyncio.AbstractEventLoop:
    """Return a loop like any other of a server, with its tasks measured."""
    loop = new_event_loop()
    measure_tasks(loop, report)
    loop.add_signal_handler(signal.SIGUSR2, report_tasks, loop)
    return loop


def report_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Say in the server's log how many tasks have not ended."""
    count = len(asyncio.all_tasks(loop))
    print(f"tasks of the loop: {count}", file=sys.stderr, flush=True)


new_event_loop = uvloop.new_event_loop

if __name__ == "__main__":
    uvloop.new_event_loop = measured_loop  # type: ignore[assignment]
    main.main()
