"""Where the program begins: what it is made of takes a second to load, and may be interrupted."""

import sys


def main() -> None:
    """Run the command that was asked for."""
    try:
        from foreshore.server.main import main as commands
    except KeyboardInterrupt:
        sys.exit(130)  # as a shell says it of a program that SIGINT has ended
    commands()


if __name__ == "__main__":
    main()
