"""`foreshore repair`: remove from a catalog what names objects that do not exist."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Protocol

import click

from foreshore.server.options import option
from foreshore.server.reporting import reporting


class Repaired(Protocol):
    """What a repair did: a line for each reference that was forgotten, or that remains."""

    @property
    def forgotten(self) -> tuple[str, ...]:
        """What was removed."""
        ...

    @property
    def remaining(self) -> tuple[str, ...]:
        """What cannot be mended."""
        ...


# Takes a data directory, and the URIs of its batches and its states if they are elsewhere.
Repair = Callable[[Path, str | None, str | None], Coroutine[None, None, Repaired]]


def repair_command(repair: Repair) -> click.Command:
    """Return the command `repair`."""

    @click.command("repair")
    @click.argument("data_dir", type=click.Path(path_type=Path, resolve_path=True, exists=True))
    @option("blob", metavar="URI", help="Where `foreshore serve` has the files of collections.")
    @option("consensus", metavar="URI", help="Where `foreshore serve` has their states.")
    def command(data_dir: Path, blob: str | None, consensus: str | None) -> None:
        """Remove from the catalog of DATA_DIR what names objects that do not exist.

        No server may have the data. Rights, memberships, default privileges, settings and roles of
        policies are removed; what a missing role owned is the first role's. The exit status is 1
        if something remains that cannot be mended.
        """
        with reporting():
            done = asyncio.run(repair(data_dir, blob, consensus))
        for line in done.forgotten:
            click.echo(f"removed: {line}")
        for line in done.remaining:
            click.echo(f"cannot be mended: {line}")
        if not done.forgotten and not done.remaining:
            click.echo("nothing to repair")
        if done.remaining:
            sys.exit(1)

    return command
