"""The program's entry point, which handles an interrupt while the modules load (about a second).

A server, and what it starts, uses the C library's allocator. Python's own gives memory back in
pieces of 1 MB that are wholly free: large plans, among which few small objects stayed, left 300 MB.
All threads share one arena of it. One for each thread would keep what that thread's plans had
taken (250 MB in place of 40), and threads that hold the interpreter's lock do not contend for it.
"""

import os
import sys

from foreshore.garbage import collection_paused

SERVING = {"serve", "demo"}
ALLOCATOR = {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1"}


def _use_the_system_allocator() -> None:
    """Begin again with the C library's allocator, which Python chooses at its start only."""
    if sys.platform == "linux" and not ALLOCATOR.keys() <= os.environ.keys():
        os.environ.update({**ALLOCATOR, **os.environ})
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def main() -> None:
    """Run the command that the command line names."""
    if SERVING.intersection(sys.argv[1:2]):
        _use_the_system_allocator()
    try:
        with collection_paused():  # which would take a tenth of the time
            from foreshore.server.main import main as commands
    except KeyboardInterrupt:
        sys.exit(130)  # the shells' status for a program that SIGINT has ended
    commands()


if __name__ == "__main__":
    main()
