"""An ingestion process whose event loop is watched; started by `guarded_server.py`."""

import sys
from pathlib import Path

from foreshore import loop_watchdog
from foreshore.storage.ingest import main

sys.path.append(str(Path(__file__).parent.parent))

from tests.loop_guard import report

if __name__ == "__main__":
    loop_watchdog.REPORTS.append(report)
    main.main()
