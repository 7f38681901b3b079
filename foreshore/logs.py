"""Logs of all processes: one format, for people or, as JSON, for programs.

A record has a message that is always the same, and values beside it (`extra`). Each JSON record is
one line: `time`, `level`, `process`, `pid`, `logger`, `message`, the values by their names, and if
there was an error its `sqlstate` and `exception`. What is logged while an HTTP request is answered
has its `request` (`logged_request`). Child processes inherit the format by the environment.

    {"time":"2026-11-26T10:12:31.042Z","level":"info","process":"server","pid":4711,
     "logger":"foreshore.storage.controller","message":"shard opened","shard":"u1"}
"""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from foreshore.errors import DatabaseError

LogFormat = Literal["text", "json"]
FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
FORMAT_VARIABLE = "FORESHORE_LOG_FORMAT"
LEVEL_VARIABLE = "FORESHORE_LOG_LEVEL"
MOST_VALUE = 8_192  # characters of a value

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_RESERVED = frozenset(("time", "level", "process", "pid", "logger", "message"))


@dataclass(slots=True)
class _Request:
    """An HTTP request; tasks that it has started may outlive it."""

    id: str
    is_over: bool = False


_request: ContextVar[_Request | None] = ContextVar("request", default=None)


@contextmanager
def logged_request(id: str) -> Iterator[None]:
    """Let records of the block, and of its tasks until it ends, have the id of an HTTP request."""
    request = _Request(id)
    token = _request.set(request)
    try:
        yield
    finally:
        request.is_over = True
        _request.reset(token)


def values_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the values beside a record's message, its request, and the SQLSTATE of its error."""
    found = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, DatabaseError):
        found.setdefault("sqlstate", error.sqlstate)
    request = _request.get()
    if request is not None and not request.is_over:
        found.setdefault("request", request.id)
    return found


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, in one line."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in values_of(record).items():
            line[f"{name}_" if name in _RESERVED else name] = _plain(value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


class TextFormatter(logging.Formatter):
    """A line for each record, its values at the end; a traceback follows in lines of its own."""

    def __init__(self, process: str) -> None:
        name = "" if process == "server" else f" {process}[{os.getpid()}]"
        super().__init__(f"%(asctime)s{name} %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the record's line without its traceback."""
        values = " ".join(f"{name}={_plain(value)}" for name, value in values_of(record).items())
        line = super().formatMessage(record)
        return f"{line} ({values})" if values else line


def _plain(value: object) -> object:
    """Return a value that JSON has; long texts are cut."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}..."


def configure(process: str, level: str = "WARNING") -> None:
    """Let this process log to its standard error as the environment says, from `level` on.

    Raises ValueError for a format or level that is unknown.
    """
    chosen = os.environ.get(FORMAT_VARIABLE, "text")
    if chosen not in FORMATS:
        raise ValueError(f"{FORMAT_VARIABLE} is {chosen!r}, not one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process) if chosen == "json" else TextFormatter(process))
    logging.basicConfig(level=os.environ.get(LEVEL_VARIABLE, level).upper(), handlers=[handler])
