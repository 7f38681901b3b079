"""How a source or sink that fails is tried again, and what one is told of the failure."""

from collections.abc import Iterator

from foreshore.errors import DatabaseError

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


def waits() -> Iterator[float]:
    """Yield the seconds before each next try."""
    seconds = FIRST_WAIT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, LONGEST_WAIT_SECONDS)


def error_text(error: OSError | DatabaseError) -> str:
    """Return an error with its hint, in one line."""
    if isinstance(error, DatabaseError) and error.hint:
        return f"{error.message} ({error.hint})"
    return str(error) or type(error).__name__
