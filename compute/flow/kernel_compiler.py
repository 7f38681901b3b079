"""A process that compiles kernels: `python -m foreshore.compute.flow.kernel_compiler`.

It writes the name of each kernel that is in the cache to standard output, and reads the names of
those that are needed first from standard input, at whose end it ends.
"""

import gc
import os
import sys
import threading
from queue import SimpleQueue

from foreshore.compute.flow.kernels.compiled import compile_missing


def main() -> None:
    """Compile what is missing, at low priority: what serves clients meanwhile goes first."""
    os.nice(5)
    gc.set_threshold(100_000)  # the compiler makes many objects
    requested: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(requested,), daemon=True).start()
    compile_missing(lambda name: print(name, flush=True), requested)


def _read(requested: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requested.put(line.strip())
    os._exit(1)


if __name__ == "__main__":
    main()
