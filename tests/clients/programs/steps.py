"""The frame of a client's program: it takes an address, runs named steps, prints what became of each.

`PROGRAM postgres://USER@HOST:PORT/DATABASE` prints a line for each step and exits with 0: `ok NAME`,
`failed NAME: REASON` or, where a part of the client is not installed, `skipped NAME: REASON`. Programs
in other languages print the same lines themselves. This file needs the standard library only, as each
program runs in the environment of its client.
"""

import asyncio
import datetime as dt
import inspect
import sys
import traceback
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

STEPS: list[Callable[[], Any]] = []

# One row with a value of each common type, and the columns that hold it.
COLUMNS = (
    "b bool, h smallint, i int, l bigint, r real, f float8, n numeric(10,2), t text, v varchar(20),"
    " y bytea, d date, tm time, ts timestamp, tz timestamptz, iv interval, u uuid, a int[], s text[]"
)
ROW: tuple[Any, ...] = (
    True, 7, -8, 2**40, 1.5, 0.1, Decimal("12.50"), "é 'quoted' \\", "short", b"\x00\xff\\",
    dt.date(2024, 2, 29), dt.time(12, 30, 0, 250000), dt.datetime(2024, 2, 29, 12, 30, 1, 5),
    dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC), dt.timedelta(days=1, hours=2),
    uuid.UUID(int=5), [1, None, 3], ["x y", None, 'q"'],
)  # fmt: skip


def url() -> str:
    """Return the address that the program was given."""
    return sys.argv[1]


def parts() -> dict[str, Any]:
    """Return the address taken apart: host, port, user and database."""
    found = urlsplit(url())
    return {
        "host": found.hostname,
        "port": found.port,
        "user": found.username,
        "database": found.path.lstrip("/"),
    }


def step(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a function, sync or async, as the next step."""
    STEPS.append(function)
    return function


@contextmanager
def raises(kind: type[BaseException], state: str | None = None):
    """Expect an error of a class, and its SQLSTATE where the driver says it."""
    try:
        yield
    except kind as error:
        found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        assert state is None or found == state, f"{found} instead of {state}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def equal(found: Any, wanted: Any) -> None:
    """Fail, showing both, unless they are equal."""
    assert found == wanted, f"{found!r} instead of {wanted!r}"


def run() -> None:
    """Run all steps in their order; a step that fails does not keep the next from being tried."""
    for each in STEPS:
        try:
            result = each()
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except ImportError as error:
            print(f"skipped {each.__name__}: {error}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in where if frame.filename.endswith(sys.argv[0])]
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"failed {each.__name__}: line {lines[-1] if lines else 0}: {text[:300]}")
        else:
            print(f"ok {each.__name__}")
        sys.stdout.flush()
