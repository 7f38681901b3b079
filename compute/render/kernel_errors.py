"""Errors of the client that kernels raise within an engine, which keeps only their text."""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from foreshore.errors import DatabaseError, Unavailable

_MARKED = re.compile(r"foreshore error <([A-Za-z0-9+/=]+)>")


class KernelError(Exception):
    """Carries an error of the client in its text."""


@contextmanager
def carrying() -> Iterator[None]:
    """Raise errors of the client in a form that an engine's exception keeps."""
    try:
        yield
    except DatabaseError as error:
        fields = (error.message, error.sqlstate, error.detail, error.hint)
        text = base64.b64encode(msgspec.json.encode(fields)).decode()
        raise KernelError(f"foreshore error <{text}>") from error


def carried_in(error: BaseException) -> DatabaseError | None:
    """Return the error of the client that an engine's exception carries, None if there is none."""
    found = _MARKED.search(str(error))
    if found is None:
        return None
    message, state, detail, hint = msgspec.json.decode(base64.b64decode(found[1]))
    return Unavailable(message, sqlstate=state, detail=detail, hint=hint)
