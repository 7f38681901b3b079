"""`foreshore`, whose event loop is watched from when it is ready, and that of its ingestion."""

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from foreshore import loop_watchdog
from foreshore.server import main

sys.path.append(str(Path(__file__).parent.parent))

from tests.loop_guard import report


def counting_loop() -> asyncio.AbstractEventLoop:
    """Return a loop like any other of a server, which says how many tasks it has when asked."""
    loop = new_event_loop()
    loop.add_signal_handler(signal.SIGUSR2, report_tasks, loop)
    return loop


def report_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Say in the server's log how many tasks have not ended."""
    count = len(asyncio.all_tasks(loop))
    print(f"tasks of the loop: {count}", file=sys.stderr, flush=True)


GUARDED_INGEST = Path(__file__).parent / "guarded_ingest.py"
new_event_loop = uvloop.new_event_loop

if __name__ == "__main__":
    uvloop.new_event_loop = counting_loop  # type: ignore[assignment]
    loop_watchdog.REPORTS.append(report)
    assert "INGEST_COMMAND" in vars(main)
    vars(main)["INGEST_COMMAND"] = (sys.executable, "-P", str(GUARDED_INGEST))
    main.main()
