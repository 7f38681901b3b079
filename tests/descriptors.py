"""Files that this process has open, known by where they are.

Their number says little in a process of many tests: a collection of garbage, or a thread of another
test, closes others meanwhile.
"""

import os
from contextlib import suppress
from pathlib import Path


def open_below(directory: Path) -> list[str]:
    """Return the names of the files below a directory, also deleted ones, that are open here."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [name for name in found if name.startswith(f"{directory}/")]
