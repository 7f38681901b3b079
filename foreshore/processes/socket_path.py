"""Short paths of Unix sockets, which a socket address limits to some hundred bytes.

A directory for temporary files may have a longer path by itself, as those of build machines do. On
Linux, an open directory has a short path.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 100  # bytes; the address holds 107 on Linux and 103 on others


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """Yield a path to listen at or connect to for the socket at `path`, while the body runs."""
    if len(os.fsencode(path)) <= LONGEST:
        yield path
        return
    directory = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{Path(path).name}"
    finally:
        os.close(directory)
