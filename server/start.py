"""The program's entry point, which handles an interrupt while the modules load (about a second)."""

import sys

from foreshore.garbage import collection_paused


def main() -> None:
    """Run the command that the command line names."""
    try:
        with collection_paused():  # which would take a tenth of the time
            from foreshore.server.main import main as commands
    except KeyboardInterrupt:
        sys.exit(130)  # the shells' status for a program that SIGINT has ended
    commands()


if __name__ == "__main__":
    main()
