"""`foreshore`, with the steps of its event loop's tasks, and of its replicas', measured."""

import sys
from functools import partial
from pathlib import Path

import uvloop

from foreshore.compute.controller import controller, process
from foreshore.server import main

sys.path.append(str(Path(__file__).parent.parent))

from tests.loop_guard import measured

REPLICA = (sys.executable, str(Path(__file__).parent / "guarded_replica.py"))

if __name__ == "__main__":
    uvloop.new_event_loop = measured(uvloop.new_event_loop)  # type: ignore[assignment]
    vars(controller)["ProcessLauncher"] = partial(process.ProcessLauncher, REPLICA)
    main.main()
