"""Find rows of one form in a text, and their literals, without tokens for each.

    (1, '2024-01-01'::date, DEFAULT)      literals 1, '2024-01-01'; form ($, $::date, DEFAULT)

`read_rows` reads the rows of a list. The first rows of a form are read cell by cell. Then the form
becomes a pattern in which each literal is a group, and blanks and comments may stand between all
parts; it reads a row in a microsecond. A row that has another cell (`sql/ast/form_rows.py` says
which a form has), or a comment within a comment, is skipped by its quotes and parentheses.

All quantifiers are possessive, so time is linear in the text for each form.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from foreshore.errors import DatabaseError
from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql.ast.form_rows import FormRows, Literals, Run
from foreshore.sql.parse.string_constants import decode_escapes

MOST_FORMS = 16  # of a list; rows of further forms are kept as they are
READ_BY_CELL = 16  # rows of a form before it becomes a pattern, which takes 2 ms to compile
MOST_KEPT = 32  # rows that are kept before more than half of a list are not worth it
MOST_STEPS = 1000  # of a row that is skipped

BLANK = r"(?:[ \t\r\n\f]++|--[^\r\n]*+|/\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/)*+"
_ENDS = r"(?![\w$])"
_NUMBER = r"[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+(?![\w.$])"
_STRING = r"(?:'(?:[^']++|'')*+'|[eE]'(?:[^'\\]++|\\.|'')*+'|\$\$(?:[^$]++|\$(?!\$))*+\$\$)"
_OTHER = rf"{_STRING}|(?ai:null|true|false){_ENDS}|\$[0-9]{{1,5}}+{_ENDS}"
_LITERAL = rf"(?:{_NUMBER}|{_OTHER})"
_SIGNED = rf"(?:[+-]?+{_NUMBER}|{_OTHER})"
# No letter that makes another kind of string of the quote after it.
_NAME = rf"""(?:(?!(?ai:[benux]){_ENDS})[^\W\d][\w$]*+|"(?:[^"]++|"")++")"""
_TYPE = (
    rf"{_NAME}(?:{BLANK}\.{BLANK}{_NAME})?+(?:{BLANK}(?ai:varying|precision){_ENDS})?+"
    rf"(?:{BLANK}\({BLANK}[0-9]++(?:{BLANK},{BLANK}[0-9]++)?+{BLANK}\))?+"
    rf"(?:{BLANK}(?ai:with|without){_ENDS}{BLANK}(?ai:time){_ENDS}{BLANK}(?ai:zone){_ENDS})?+"
    rf"(?:{BLANK}\[{BLANK}[0-9]*+{BLANK}\])*+"
)
_CASTS = rf"(?:{BLANK}::{BLANK}{_TYPE})"
_CELL = re.compile(
    rf"{BLANK}(?:(?P<default>(?ai:default){_ENDS})"
    rf"|(?P<plain>{_SIGNED})(?={BLANK}[,)])"
    rf"|(?P<sign>[+-]?+)(?P<literal>{_LITERAL})(?P<casts>{_CASTS}++)"
    rf"|(?P<cast>(?ai:cast)){BLANK}\({BLANK}(?P<given>{_SIGNED}){BLANK}"
    rf"(?P<as>(?ai:as){_ENDS}{BLANK}{_TYPE}{BLANK}\){_CASTS}*+)"
    rf"|(?P<type>{_TYPE}){BLANK}(?P<typed>{_STRING})(?P<after>{_CASTS}*+)"
    rf"){BLANK}(?P<end>[,)])",
    re.DOTALL,
)
_BLANKS = re.compile(BLANK)
_CLOSED = re.compile(rf"{BLANK}\)")
_PARTS = re.compile(
    r"""(?P<blank>[ \t\r\n\f]++|--[^\r\n]*+|/\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/)"""
    r"""|(?P<name>"(?:[^"]++|"")++")|(?P<word>[^\W\d][\w$]*+)|(?P<number>[0-9]++)|::|.""",
    re.DOTALL,
)
# A part of a row that is skipped. What may have lists of rows of its own ends the search.
_STEP = re.compile(
    r"""(?P<open>\()|(?P<close>\))|(?P<comment>/\*)"""
    r"""|(?P<stop>(?ai:select|values|in)(?![\w$])|;|\Z)"""
    r"""|--[^\r\n]*+|[eE]'(?:[^'\\]++|\\.|'')*+'|'(?:[^']++|'')*+'|"(?:[^"]++|"")*+\""""
    r"""|\$(?P<tag>(?:[^\W\d]\w*+)?+)\$.*?\$(?P=tag)\$|\w[\w$]*+|[^\w"'$()/;-]++|[$/-]""",
    re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


class _Row(NamedTuple):
    """A row that was read cell by cell."""

    key: str  # the source of the pattern of such rows
    has_literal: Sequence[bool]  # of each cell
    literals: Sequence[str]
    end: int


class _Form:
    """A form, by its first row, and the literals of its rows."""

    def __init__(self, first: _Row, kept: int) -> None:
        self.kept = kept
        self.has_literal = first.has_literal
        self.rows: list[Sequence[str]] = [first.literals]
        self.pattern: re.Pattern[str] | None = None  # None: it has few rows so far

    def add(self, row: _Row) -> None:
        """Add a row that was read cell by cell."""
        self.rows.append(row.literals)
        if len(self.rows) == READ_BY_CELL:
            self.pattern = _pattern_of(row.key)


class _List:
    """The runs of a list of rows, as far as it has been read, and the forms that they have."""

    def __init__(self) -> None:
        self.forms: dict[str, _Form] = {}
        self.recent: list[_Form] = []  # last used first
        self.kept: list[tuple[int, int, int]] = []  # ends of rows before, ranges of those kept
        self.runs: list[Run] = []
        self.count = 0

    def add(self, kept: int, rows: int = 1) -> None:
        """Add rows that have the form of one that is kept, or are this row."""
        self.count += rows
        if self.runs and self.runs[-1].kept == kept:
            rows += self.runs.pop().rows
        self.runs.append(Run(kept, rows))

    def keep(self, before: int, start: int, end: int) -> None:
        """Add a row that is kept."""
        self.add(len(self.kept))
        self.kept.append((before, start, end))

    @property
    def is_worth_it(self) -> bool:
        """Whether many of the rows need not be kept."""
        return len(self.kept) <= MOST_KEPT or 2 * len(self.kept) < self.count


def read_rows(text: str, start: int, end: int, fewest: int, *, is_in_list: bool) -> FormRows | None:
    """Return the list of rows that begins with the parenthesis at `start`.

    None if fewer than `fewest` rows have the form of another row, or if the list goes on with
    anything but rows; then the text is read as it is.
    """
    found = _List()
    before, at = start, start
    while found.is_worth_it:
        if REQUESTS:
            safepoint()
        row = _read_row(text, at, end)
        if is_in_list and row is not None and len(row.has_literal) == 1:
            return None  # these parentheses make no row
        if row is None or row.key not in found.forms:
            until = _end_of_row(text, at, end) if row is None else row.end
            if until is None:
                return None
            if row is not None and len(found.forms) < MOST_FORMS:
                found.forms[row.key] = form = _Form(row, len(found.kept))
                found.recent.append(form)
            found.keep(before, at, until)
        else:
            form, until = found.forms[row.key], row.end
            form.add(row)
            found.add(form.kept)
        before = _read_runs(found, text, until, end)
        after = _after_comma(text, before, end)
        if after is None:
            return _rows_of(found, text, before, end, fewest, is_in_list=is_in_list)
        if not text.startswith("(", after, end):
            return None
        at = after
    return None


def _read_runs(found: _List, text: str, at: int, end: int) -> int:
    """Read the rows after `at` whose forms have patterns; return their end."""
    while (run := _matching(found.recent, text, at, end)) is not None:
        form, row = run
        found.recent.remove(form)
        found.recent.insert(0, form)
        read, before = row.re.match, len(form.rows)
        while True:
            if REQUESTS:
                safepoint()
            form.rows.append(row.groups())
            at = row.end()
            more = read(text, at, end)
            if more is None:
                break
            row = more
        found.add(form.kept, len(form.rows) - before)
    return at


def _matching(
    forms: Sequence[_Form], text: str, at: int, end: int
) -> tuple[_Form, re.Match[str]] | None:
    """Return the form of the row after `at`, among those with a pattern."""
    for form in forms:
        if form.pattern is not None and (row := form.pattern.match(text, at, end)) is not None:
            return form, row
    return None


def _rows_of(
    found: _List, text: str, at: int, end: int, fewest: int, *, is_in_list: bool
) -> FormRows | None:
    """Return the rows of a list that ends at `at`; None if they are to be read as they are."""
    if found.count - len(found.kept) < fewest:
        return None
    if is_in_list and _CLOSED.match(text, at, end) is None:
        return None
    try:
        columns = {form.kept: _columns_of(form) for form in found.forms.values()}
    except DatabaseError:  # of a wrong escape, whose position the lexer knows
        return None
    ends = [before for before, _, _ in found.kept[1:]] + [at]
    starts = [until for _, _, until in found.kept]
    gaps = [gap for gap in zip(starts, ends, strict=True) if gap[0] < gap[1]]
    start = found.kept[0][1]
    return FormRows(text, start, at, gaps, found.runs, columns, is_in_list=is_in_list)


def _columns_of(form: _Form) -> list[Literals]:
    """Return the literals of a form by columns; strings are in plain quotes."""
    literals = iter(zip(*form.rows, strict=True))
    return [_plain(list(next(literals))) if has else None for has in form.has_literal]


def _plain(texts: list[str]) -> list[str]:
    """Return literals with strings in plain quotes."""
    firsts = set(map(itemgetter(0), texts))
    return list(map(_in_quotes, texts)) if firsts & {"e", "E", "$"} else texts


def _in_quotes(text: str) -> str:
    """Return a literal, if it is a string in plain quotes."""
    if text[0] in "eE":
        value = decode_escapes([text[2:-1]], 0) if "\\" in text else text[2:-1].replace("''", "'")
    elif text.startswith("$$"):
        value = text[2:-2]
    else:
        return text
    return "'" + value.replace("'", "''") + "'"


def _read_row(text: str, at: int, end: int) -> _Row | None:
    """Return the row that begins at `at`, read cell by cell; None if a cell is of no form."""
    parts, has_literal, literals = [r"\("], list[bool](), list[str]()
    at += 1
    while True:
        cell = _CELL.match(text, at, end)
        if cell is None:
            return None
        source, literal = _source_of(cell)
        parts.append(source)
        has_literal.append(literal is not None)
        if literal is not None:
            literals.append(literal)
        at = cell.end()
        if cell["end"] == ")":
            return _Row(BLANK.join([*parts, r"\)"]), has_literal, literals, at)
        parts.append(",")


def _source_of(cell: re.Match[str]) -> tuple[str, str | None]:
    """Return the source of a pattern that matches cells like one, and the literal of this one."""
    if cell["plain"] is not None:
        return f"({_SIGNED})", cell["plain"]
    if cell["literal"] is not None:
        return _around(cell["sign"], _LITERAL, cell["casts"]), cell["literal"]
    if cell["given"] is not None:
        return _around(f"{cell['cast']}(", _SIGNED, cell["as"]), cell["given"]
    if cell["typed"] is not None:
        return _around(cell["type"], _STRING, cell["after"]), cell["typed"]
    return _around("default", "", ""), None


@lru_cache(1024)
def _around(before: str, literal: str, after: str) -> str:
    """Return the source of a group for a literal between parts that are matched as they are."""
    group = (f"({literal})",) if literal else ()
    return BLANK.join((*_verbatim(before), *group, *_verbatim(after)))


def _verbatim(text: str) -> list[str]:
    """Return the sources of the parts of a text, which match them as they are."""
    found = []
    for part in _PARTS.finditer(text):
        word = part["word"]
        if word is not None:
            source = f"(?ai:{re.escape(word.lower())})" if word.isascii() else re.escape(word)
            found.append(source + _ENDS)
        elif part["blank"] is None:
            found.append(re.escape(part[0]) + (_ENDS if part["number"] is not None else ""))
    return found


@lru_cache(256)
def _pattern_of(key: str) -> re.Pattern[str]:
    """Return what matches a row, and the comma before it."""
    return re.compile(rf"{BLANK},{BLANK}{key}", re.DOTALL)


def _after_comma(text: str, at: int, end: int) -> int | None:
    """Return where a list goes on after a comma; None if none follows."""
    at = _after_blanks(text, at, end)
    return _after_blanks(text, at + 1, end) if text.startswith(",", at, end) else None


def _after_blanks(text: str, at: int, end: int) -> int:
    """Return the end of blanks and comments."""
    while True:
        found = _BLANKS.match(text, at, end)
        at = at if found is None else found.end()
        after = _end_of_comment(text, at, end) if text.startswith("/*", at, end) else None
        if after is None:
            return at
        at = after


def _end_of_row(text: str, at: int, end: int) -> int | None:
    """Return the end of the row that begins at `at`; None if that is not easily known."""
    depth = 0
    for _ in range(MOST_STEPS):
        step = _STEP.match(text, at, end)
        if step is None or step["stop"] is not None:
            return None
        at = step.end()
        if step["comment"] is not None:
            after = _end_of_comment(text, step.start(), end)
            if after is None:
                return None
            at = after
        elif step["open"] is not None:
            depth += 1
        elif step["close"] is not None:
            depth -= 1
            if not depth:
                return at
    return None


def _end_of_comment(text: str, start: int, end: int) -> int | None:
    """Return where a comment ends, in which others may be nested."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start, end):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return None
