"""regexp_count, regexp_instr, regexp_substr and regexp_replace, with a start, an n-th match, flags.

They are those of PostgreSQL 15; `pattern.py` has the shorter forms.
"""

from foreshore.expr.functions.function import BY_KEY, declare
from foreshore.expr.functions.pattern import expanded, flags_of, rows_of
from foreshore.expr.functions.regex import compile_regex
from foreshore.expr.functions.regex_match import Bounds, Matching, captures, find_all, matching
from foreshore.expr.functions.rows import Failure, fail


def _parameter(name: str, value: int) -> Failure:
    return fail("22023", f'invalid value for parameter "{name}": {value}')


class _Search:
    """The matches of a pattern in a text from a position on, as offsets in the whole text."""

    def __init__(self, function: str, text: str, pattern: str, start: int, flags: str) -> None:
        if start <= 0:
            raise _parameter("start", start)
        self.regex = compile_regex(pattern, flags_of(flags, function))
        self.text = text
        self.found: Matching = matching(self.regex, text)
        self.start = start - 1

    def matches(self) -> list[Bounds]:
        """Return all matches from the start on."""
        if self.start == 0:
            return find_all(self.found, self.text)
        out: list[Bounds] = []
        at = self.start
        while at <= len(self.text):
            bounds = self.found.find(at)
            if bounds is None:
                break
            out.append(bounds)
            at = bounds[1] + 1 if bounds[0] == bounds[1] else bounds[1]
        return out

    def nth(self, n: int) -> Bounds | None:
        """Return the n-th match, from 1."""
        if n <= 0:
            raise _parameter("n", n)
        found = self.matches()
        return found[n - 1] if n <= len(found) else None


def _count(text: str, pattern: str, start: int = 1, flags: str = "") -> int:
    return len(_Search("regexp_count", text, pattern, start, flags).matches())


def _instr(
    text: str,
    pattern: str,
    start: int = 1,
    n: int = 1,
    end: int = 0,
    flags: str = "",
    group: int = 0,
) -> int:
    search = _Search("regexp_instr", text, pattern, start, flags)
    if end not in (0, 1):
        raise _parameter("endoption", end)
    if group < 0:
        raise _parameter("subexpr", group)
    bounds = search.nth(n)
    if bounds is None or group > search.regex.groups:
        return 0
    if group:
        raise fail("0A000", "the position of a subexpression is not supported")
    return bounds[end] + 1


def _substr(
    text: str, pattern: str, start: int = 1, n: int = 1, flags: str = "", group: int = 0
) -> str | None:
    search = _Search("regexp_substr", text, pattern, start, flags)
    if group < 0:
        raise _parameter("subexpr", group)
    bounds = search.nth(n)
    if bounds is None or group > search.regex.groups:
        return None
    if group:
        return captures(search.regex, search.found, bounds)[group - 1]
    return text[bounds[0] : bounds[1]]


def _replace(
    text: str, pattern: str, replacement: str, start: int, n: int = 1, flags: str = ""
) -> str:
    search = _Search("regexp_replace", text, pattern, start, flags.replace("g", ""))
    if n < 0:
        raise _parameter("n", n)
    matches = search.matches()
    chosen = matches if n == 0 else matches[n - 1 : n]
    out: list[str] = []
    at = 0
    for begin, end in chosen:
        groups = captures(search.regex, search.found, (begin, end)) if search.regex.groups else []
        out += [text[at:begin], expanded(replacement, text[begin:end], groups)]
        at = end
    return "".join(out) + text[at:]


for _name, _compute, _first, _all in (
    ("regexp_count", _count, 3, "text text int4 text"),
    ("regexp_instr", _instr, 2, "text text int4 int4 int4 text int4"),
    ("regexp_substr", _substr, 2, "text text int4 int4 text int4"),
    ("regexp_replace", _replace, 4, "text text text int4 int4 text"),
):
    _types = _all.split()
    for _n in range(_first, len(_types) + 1):
        _args = " ".join(_types[:_n])
        if f"{_name}({','.join(_types[:_n])})" not in BY_KEY:
            _result = "int4" if _name in ("regexp_count", "regexp_instr") else "text"
            declare(_name, _args, _result, rows_of(_compute), fallible=True)
