"""A replica's process, with the steps of its event loop's tasks measured."""

import sys
from pathlib import Path

import uvloop

from foreshore.compute.replica import main

sys.path.append(str(Path(__file__).parent.parent))

from tests.loop_guard import measured

if __name__ == "__main__":
    uvloop.new_event_loop = measured(uvloop.new_event_loop)  # type: ignore[assignment]
    main.main()
