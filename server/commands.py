"""The group of the program's commands."""

import os
import signal
import sys
from typing import Any

import click


class Commands(click.Group):
    """Commands that end quietly when nobody reads their output any more, as in `| head`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its status is then that of a program that SIGPIPE has ended."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())
            ctx.exit(128 + signal.SIGPIPE)
