"""Match regular expressions on the engine that bounds the time best.

    Python's `re`   for texts so short that even the worst case is cheap; the fastest
    RE2             linear in the text, for any expression it accepts
    `regex`         for expressions that need backtracking (lookaround), with a time-out

`matching` chooses the engine. It returns an object that finds the bounds of matches, in characters,
and the captures of their groups. All engines return the match that PostgreSQL returns.
"""

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from time import monotonic
from typing import Any, Protocol

import numpy as np
import regex as timed

from foreshore.expr.functions.regex import Regex, Source, linear_engine, unsupported
from foreshore.expr.functions.rows import Failure, fail

MOST_SECONDS = 1.0  # of backtracking, per text

Bounds = tuple[int, int]
Groups = list[str | None]


class Matching(Protocol):
    """The matches of one expression in one text."""

    def matches(self) -> bool:
        """Return whether there is a match."""
        ...

    def find(self, start: int = 0) -> Bounds | None:
        """Return the bounds of the first match at or after `start`, by the POSIX rules."""
        ...

    def groups(self, bounds: Bounds, *, reordered: bool) -> Groups | None:
        """Return the captures of a match; None for a group that did not take part."""
        ...


def matching(regex: Regex, text: str) -> Matching:
    """Return a matcher of `regex` in `text`; rejects texts on which engines may differ."""
    if len(text) <= regex.short and not regex.ascii_only:
        return _Backtracking(regex, text)
    if regex.ascii_only and not text.isascii():
        raise unsupported("character classes over text that is not ASCII")
    return _bounded(regex, text)


def _bounded(regex: Regex, text: str) -> "_Linear | _Timed":
    if regex.source.linear is not None and (not regex.boundaries or text.isascii()):
        return _Linear(regex, text)
    return _Timed(regex, text)


def find_all(found: Matching, text: str) -> list[Bounds]:
    """Return the bounds of all non-overlapping matches, as with the flag g."""
    out: list[Bounds] = []
    find, at = found.find, 0
    while at <= len(text):
        bounds = find(at)
        if bounds is None:
            break
        out.append(bounds)
        at = bounds[1] + 1 if bounds[0] == bounds[1] else bounds[1]
    return out


def captures(regex: Regex, found: Matching, bounds: Bounds) -> Groups:
    """Return the captures of a match; raises an error if engines may differ."""
    if regex.mixed:
        raise unsupported("both greedy and non-greedy quantifiers and captures")
    groups = found.groups(bounds, reordered=False)
    assert groups is not None, (regex.source, bounds)
    if regex.reordered is not None and found.groups(bounds, reordered=True) != groups:
        raise unsupported("alternatives that can capture in several ways")
    return groups


class _Backtracking:
    """Match by backtracking with few alternatives."""

    __slots__ = ("_found", "_regex", "_text")

    def __init__(self, regex: Regex, text: str) -> None:
        self._regex = regex
        self._text = text
        self._found: re.Match[str] | None = None

    def matches(self) -> bool:
        return self._regex.source.compiled.search(self._text) is not None

    def find(self, start: int = 0) -> Bounds | None:
        regex, text = self._regex, self._text
        found = self._found = regex.source.compiled.search(text, start)
        if found is None:
            return None
        begin, end = found.span()
        if regex.preferred or end == (begin if regex.greedy is False else len(text)):
            return begin, end
        if regex.delimited:
            return _bounded(regex, text).find(start)
        whole = regex.source.compiled.fullmatch
        for end in _ends(regex, begin, len(text)):
            if whole(text, begin, end) is not None:
                return begin, end
        raise AssertionError((regex, text, start))

    def groups(self, bounds: Bounds, *, reordered: bool) -> Groups | None:
        regex, found = self._regex, self._found
        if not reordered and found is not None and found.span() == bounds:
            return list(found.groups())
        if regex.delimited:
            return _bounded(regex, self._text).groups(bounds, reordered=reordered)
        source = regex.reordered if reordered else regex.source
        assert source is not None
        whole = source.compiled.fullmatch(self._text, *bounds)
        return _captured(whole, regex, reordered=reordered)


def _ends(regex: Regex, begin: int, last: int) -> range:
    """Return possible ends of a match that starts at `begin`, in the order of preference."""
    return range(begin, last + 1) if regex.greedy is False else range(last, begin - 1, -1)


def _captured(found: Any, regex: Regex, *, reordered: bool) -> list[Any] | None:
    """Return the captures of a match; those of the expression `reordered` are named."""
    if found is None:
        return None
    if not reordered:
        return list(found.groups())
    return [found.group(f"g{i}") for i in range(1, regex.groups + 1)]


class _Timed:
    """Match by backtracking with a time-out."""

    def __init__(self, regex: Regex, text: str) -> None:
        self._regex = regex
        self._text = text
        self._until = monotonic() + MOST_SECONDS

    def matches(self) -> bool:
        return self._search(0) is not None

    def find(self, start: int = 0) -> Bounds | None:
        found = self._search(start)
        if found is None or self._regex.preferred:
            return None if found is None else found.span()
        begin, source = found.start(), self._regex.source
        ends = _ends(self._regex, begin, len(self._text))
        return next((begin, end) for end in ends if self._whole(source, (begin, end)) is not None)

    def groups(self, bounds: Bounds, *, reordered: bool) -> Groups | None:
        if self._regex.empty_loops:  # this engine captures one more match, of nothing
            raise unsupported("captures and repeated groups that may be empty")
        source = self._regex.reordered if reordered else self._regex.source
        assert source is not None
        return _captured(self._whole(source, bounds), self._regex, reordered=reordered)

    def _whole(self, source: Source, bounds: Bounds) -> Any:
        r"""Return the match with exactly these bounds, with the whole text visible.

        The end is set by an assertion, not by cutting the text, because `$` and \b look beyond it.
        """
        begin, end = bounds
        if not self._regex.delimited:
            return self._call(self._engine(source.python).fullmatch, begin, end)
        rest = len(self._text) - end
        ending = f"(?:{source.python})(?=(?s:.){{{rest}}}\\Z)"
        return self._call(self._engine(ending).match, begin)

    def _search(self, start: int) -> Any:
        return self._call(self._engine(self._regex.source.python).search, start)

    def _engine(self, source: str) -> Any:
        return _timed_engine(source, timed.IGNORECASE if self._regex.ignore_case else 0)

    def _call(self, call: Callable[..., Any], *bounds: int) -> Any:
        left = self._until - monotonic()
        try:
            if left > 0:
                return call(self._text, *bounds, timeout=left, concurrent=True)
        except TimeoutError:
            pass
        raise _takes_too_long()


class _Linear:
    """Match by RE2, over the bytes of the text."""

    def __init__(self, regex: Regex, text: str) -> None:
        assert regex.source.linear is not None
        self._regex = regex
        self._source = regex.source.linear
        self._data = text.encode()
        self._is_ascii = len(self._data) == len(text)

    def matches(self) -> bool:
        return linear_engine(self._source).search(self._data) is not None

    def find(self, start: int = 0) -> Bounds | None:
        regex = self._regex
        longest = not regex.preferred and regex.greedy is not False
        found = linear_engine(self._source, longest=longest).search(self._data, self._byte(start))
        if found is None:
            return None
        begin, end = found.span()
        if not regex.preferred and not longest:
            end = self._shortest(begin, end)
        return self._character(begin), self._character(end)

    def _shortest(self, begin: int, end: int) -> int:
        """Return the least end of a match that begins at `begin`; one match ends at `end`.

        Doubles the number of bytes until they contain a match, then bisects.
        """
        engine = linear_engine(self._source)
        low, high = begin - 1, begin
        while high < end and engine.match(self._data, begin, high) is None:
            low, high = high, begin + 2 * (high - begin) + 1
        high = min(high, end)
        while high - low > 1:
            middle = (low + high) // 2
            if engine.match(self._data, begin, middle) is None:
                low = middle
            else:
                high = middle
        return high

    def groups(self, bounds: Bounds, *, reordered: bool) -> Groups | None:
        regex = self._regex
        source = regex.reordered if reordered else regex.source
        if source is None or source.linear is None:
            return None
        begin, end = map(self._byte, bounds)
        found = linear_engine(source.linear).fullmatch(self._data, begin, end)
        groups = _captured(found, regex, reordered=reordered)
        return groups and [None if each is None else each.decode() for each in groups]

    @cached_property
    def _starts(self) -> "np.ndarray":
        """Return where each character begins, and the end."""
        data = np.frombuffer(self._data, np.uint8)
        return np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))

    def _byte(self, character: int) -> int:
        return character if self._is_ascii else int(self._starts[character])

    def _character(self, byte: int) -> int:
        return byte if self._is_ascii else int(np.searchsorted(self._starts, byte))


def _takes_too_long() -> Failure:
    return fail("54001", "regular expression takes too long to match")


@lru_cache(512)
def _timed_engine(source: str, options: int) -> Any:
    try:
        return timed.compile(source, options)
    except (timed.error, RecursionError) as error:
        raise unsupported(f"such constructs ({error})") from None
