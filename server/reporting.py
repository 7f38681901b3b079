"""Errors of commands: one line for people, and an exit status of 1."""

import contextlib
from collections.abc import Iterator

import click

from foreshore.errors import DatabaseError


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Turn an error into a message and an exit status of 1."""
    try:
        yield
    except DatabaseError as error:
        detail = "" if error.detail is None else f"; {error.detail}"
        raise click.ClickException(f"{error.message}{detail}") from error
    except OSError as error:
        raise click.ClickException(str(error)) from error
