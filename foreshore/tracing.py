"""Spans: what a statement spends its time on, for OpenTelemetry; nothing at all unless switched on.

A span is a piece of work with a beginning and an end, and the smaller spans within it. Each
statement is a root span; `phase` adds one to the statement that the running task works for. A span
goes to the recorder when its root has ended. `server/traces.py` has the recorder, which sends them.

    with tracing.phase("plan"):
        ...
"""

import re
from collections.abc import Mapping
from contextvars import ContextVar
from time import time_ns
from typing import Protocol

MOST_PHASES = 200  # of a span; later ones are left out
MOST_TEXT = 8_192  # characters of a statement that are shown
_ENDS = 1_024  # characters at both ends of a statement where a comment is looked for
_TRACEPARENT = "([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})"
_COMMENT = re.compile(rf"traceparent='{_TRACEPARENT}'")
_HEADER = re.compile(_TRACEPARENT)

Attribute = str | int | float | bool


class Span:
    """A piece of work; times are nanoseconds since 1970. `ended` is 0 while it is going on."""

    __slots__ = ("attributes", "began", "ended", "error", "name", "phases")

    def __init__(self, name: str, began: int | None = None) -> None:
        self.name = name
        self.began = time_ns() if began is None else began
        self.ended = 0
        self.error: str | None = None
        self.phases: list[Span] = []
        self.attributes: dict[str, Attribute] = {}


class Recorder(Protocol):
    """Takes spans that have ended, with the spans within them."""

    def record(self, span: Span, traceparent: str | None) -> None:
        """Take a root span, which belongs to the trace of `traceparent` if that is given."""
        ...


_recorder: Recorder | None = None
is_on = False  # whether there is a recorder
_current: ContextVar[Span | None] = ContextVar("span", default=None)
_parent: ContextVar[str | None] = ContextVar("traceparent", default=None)  # of the request


def switch(recorder: Recorder | None) -> None:
    """Give spans to a recorder from now on, or to nobody."""
    global _recorder, is_on
    _recorder, is_on = recorder, recorder is not None


def take_parent(header: str | None) -> None:
    """Note the header `traceparent` of the request for which this task works."""
    if _recorder is not None:
        _parent.set(header if header is not None and _HEADER.fullmatch(header) else None)


def begin(text: str) -> "Root | None":
    """Begin the span of a statement, if spans are recorded."""
    if _recorder is None:
        return None
    root = Root(text)
    _current.set(root.span)
    return root


class Root:
    """The span of a statement, and the trace that it belongs to."""

    __slots__ = ("_text", "span")

    def __init__(self, text: str) -> None:
        self.span = Span("statement")
        self._text = text

    def end(self, name: str, attributes: Mapping[str, Attribute], error: str | None = None) -> None:
        """End the span and record it."""
        _current.set(None)
        span = self.span
        span.name, span.error, span.ended = name, error, time_ns()
        span.attributes.update(attributes)
        if _recorder is not None:
            _recorder.record(span, traceparent_of(self._text) or _parent.get())

    def drop(self, name: str) -> None:
        """End what is no statement of its own; record it if it has phases."""
        if self.span.phases:
            self.end(name, {})
        else:
            _current.set(None)


def traceparent_of(text: str) -> str | None:
    """Return the traceparent of a comment at an end of a statement, as sqlcommenter writes it."""
    found = _COMMENT.search(text[-_ENDS:]) or _COMMENT.search(text[:_ENDS])
    return None if found is None else found[1]


def record(name: str, began: int, attributes: Mapping[str, Attribute]) -> None:
    """Record a root span that ends now."""
    if _recorder is not None:
        span = Span(name, began)
        span.ended = time_ns()
        span.attributes.update(attributes)
        _recorder.record(span, None)


class _Nothing:
    """A phase of what has no span."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class _Phase:
    """A span within another one, for as long as the block runs."""

    __slots__ = ("_outer", "_span")

    def __init__(self, outer: Span, name: str) -> None:
        self._outer, self._span = outer, Span(name)
        if len(outer.phases) < MOST_PHASES:
            outer.phases.append(self._span)

    def __enter__(self) -> None:
        _current.set(self._span)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        _current.set(self._outer)
        self._span.ended = time_ns()
        if error is not None:
            self._span.error = type(error).__name__


_NOTHING = _Nothing()


def phase(name: str) -> _Nothing | _Phase:
    """Return a block that is a span of the statement for which this task works, if it has one."""
    if _recorder is None:
        return _NOTHING
    outer = _current.get()
    return _NOTHING if outer is None else _Phase(outer, name)
