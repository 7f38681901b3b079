"""Pattern matching: LIKE, SIMILAR TO and regular expressions."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import data_error
from foreshore.expr.functions.function import (
    NO_LITERAL,
    Kernel,
    Literals,
    Outcome,
    Renderer,
    Rendering,
    Signature,
    declare,
    declare_table,
    overload,
    quoted_literal,
)
from foreshore.expr.functions.regex import captures, check_text, compile_regex, find, find_all
from foreshore.expr.functions.rows import Failure, fail, only_value, rowwise
from foreshore.expr.functions.text import to_lower
from foreshore.types import TEXT, array_of

ENDS_IN_ESCAPE = data_error("22025", "LIKE pattern must not end with escape character")


@lru_cache(1024)
def like_source(pattern: str) -> str:
    """Return the regular expression of a LIKE pattern; raises `Failure`."""
    out: list[str] = []
    characters = iter(pattern)
    for c in characters:
        if c == "%":
            out.append(".*")
        elif c == "_":
            out.append(".")
        elif c == "\\":
            following = next(characters, None)
            if following is None:
                raise Failure(ENDS_IN_ESCAPE)
            out.append(re.escape(following))
        else:
            out.append(re.escape(c))
    return "".join(out)


@lru_cache(1024)
def _like_regex(pattern: str) -> "re.Pattern[str]":
    return re.compile(like_source(pattern), re.DOTALL)


def like(text: str, pattern: str) -> bool:
    """Return whether `text` is like `pattern`.

    An escape character at its end is an error only if the text gets the match that far.
    """
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        reached = re.compile(like_source(pattern[:-1]) + "(?=.)", re.DOTALL)
        if reached.match(text) is not None:
            raise Failure(ENDS_IN_ESCAPE)
        return False
    return _like_regex(pattern).fullmatch(text) is not None


def _like(negated: bool, insensitive: bool) -> Kernel:
    def one(text: str, pattern: str) -> bool:
        if insensitive:
            text, pattern = to_lower(text), to_lower(pattern)
        return like(text, pattern) != negated

    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        pattern = only_value(b) if len(a) > 4 else None
        if pattern is not None and not insensitive and "\\" not in pattern:
            found = pc.match_like(a, pattern)
            return pc.invert(found) if negated else found
        return rowwise(types, one, a, b)

    return kernel


def like_escape(pattern: str, escape: str) -> str:
    """Return a LIKE pattern with another escape character as one with the backslash."""
    if len(escape) > 1:
        raise fail("22025", "invalid escape string")
    if escape == "\\":
        return pattern
    if not escape:
        return pattern.replace("\\", "\\\\")
    out: list[str] = []
    escaped = False
    for c in pattern:
        if c == escape and not escaped:
            out.append("\\")
            escaped = True
        else:
            out.append("\\\\" if c == "\\" and not escaped else c)
            escaped = False
    return "".join(out)


def similar_to_escape(pattern: str, escape: str = "\\") -> str:
    """Return the regular expression of a SIMILAR TO pattern."""
    if len(escape) > 1:
        raise fail("22025", "invalid escape string")
    out: list[str] = ["^(?:"]
    in_bracket = False
    at = 0
    while at < len(pattern):
        c = pattern[at]
        at += 1
        if escape and c == escape:
            if at >= len(pattern):
                out.append("\\")
                break
            following = pattern[at]
            at += 1
            if following == '"':
                raise fail("0A000", "SIMILAR TO with escaped double quotes is not supported")
            out.append("\\" + following)
        elif in_bracket:
            if c == "\\":
                out.append("\\")
            out.append(c)
            in_bracket = c != "]"
        elif c == "[":
            out.append(c)
            in_bracket = True
        elif c == "%":
            out.append(".*")
        elif c == "_":
            out.append(".")
        elif c == "(":
            out.append("(?:")
        elif c in "\\.^$":
            out.append("\\" + c)
        else:
            out.append(c)
    out.append(")$")
    return "".join(out)


def _matches(negated: bool, insensitive: bool) -> Kernel:
    flags = "i" if insensitive else ""

    def one(text: str, pattern: str) -> bool:
        regex = compile_regex(pattern, flags)
        check_text(regex, text)
        return (regex.compiled.search(text) is not None) != negated

    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        pattern = only_value(b) if len(a) > 4 else None
        if pattern is None:
            return rowwise(types, one, a, b)
        try:
            regex = compile_regex(pattern, flags)
        except Failure as failure:
            return pa.nulls(len(a), pa.bool_()), pa.array([failure.text] * len(a))
        delicate = regex.unicode or regex.ascii_only
        if regex.linear is None or (delicate and pc.all(pc.string_is_ascii(a)).as_py() is False):
            return rowwise(types, one, a, b)
        found = pc.match_substring_regex(a, regex.linear)
        return pc.invert(found) if negated else found

    return kernel


def _flags_of(flags: str, *, allow_global: bool) -> str:
    for flag in flags:
        if flag not in "gicnmpwqstxeb":
            raise fail("22023", f'invalid regular expression option: "{flag}"')
        if flag == "g" and not allow_global:
            raise fail("22023", 'regexp_match() does not support the "global" option')
    return flags.replace("g", "")


def regexp_replace(text: str, pattern: str, replacement: str, flags: str = "") -> str:
    """Return `text` with the first match replaced, or all with the flag g."""
    if flags[:1].isdigit():
        raise fail("22023", f'invalid regular expression option: "{flags[0]}"')
    regex = compile_regex(pattern, _flags_of(flags, allow_global=True))
    if "g" in flags:
        matches = find_all(regex, text)
    else:
        first = find(regex, text)
        matches = [] if first is None else [first]
    out: list[str] = []
    at = 0
    needs_groups = re.search(r"\\[1-9]", replacement) is not None
    for begin, end in matches:
        groups = captures(regex, text, (begin, end)) if needs_groups and regex.groups else []
        out += [text[at:begin], _expanded(replacement, text[begin:end], groups)]
        at = end
    return "".join(out) + text[at:]


def _expanded(replacement: str, whole: str, groups: list[str | None]) -> str:
    def one(match: "re.Match[str]") -> str:
        c = match[1]
        if c == "&":
            return whole
        if c.isdigit() and c != "0":
            index = int(c) - 1
            return (groups[index] or "") if index < len(groups) else ""
        return "\\" if c == "\\" else match[0]

    return re.sub(r"\\(.)", one, replacement, flags=re.DOTALL)


def regexp_match(text: str, pattern: str, flags: str = "") -> tuple[str | None, ...] | None:
    """Return the captures of the first match, or the match if there are no groups."""
    regex = compile_regex(pattern, _flags_of(flags, allow_global=False))
    bounds = find(regex, text)
    return None if bounds is None else _captured(regex, text, bounds)


def _captured(regex: Any, text: str, bounds: tuple[int, int]) -> tuple[str | None, ...]:
    if not regex.groups:
        return (text[bounds[0] : bounds[1]],)
    return tuple(captures(regex, text, bounds))


def _substring_regex(text: str, pattern: str) -> str | None:
    regex = compile_regex(pattern)
    bounds = find(regex, text)
    return None if bounds is None else _captured(regex, text, bounds)[0]


def regexp_split(text: str, pattern: str, flags: str = "") -> tuple[str, ...]:
    """Return what lies between the matches; empty matches at an end do not count."""
    regex = compile_regex(pattern, _flags_of(flags, allow_global=True))
    out: list[str] = []
    at = 0
    for begin, end in find_all(regex, text):
        if begin == end and begin in (0, len(text)):
            continue
        out.append(text[at:begin])
        at = end
    out.append(text[at:])
    return tuple(out)


def _count(text: str, pattern: str) -> int:
    return len(find_all(compile_regex(pattern), text))


def _rows(compute: Callable[..., Any]) -> Kernel:
    return lambda types, *arrays: rowwise(types, compute, *arrays)


def _like_sql(operator: str) -> Rendering:
    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
        pattern = quoted_literal(args[1])
        if pattern is None:
            return None
        return f"({args[0]} {operator} {args[1]})"

    return render


def total_pattern(key: str, literals: Literals) -> bool:
    """Whether a match against a known pattern cannot fail."""
    pattern = literals[1] if literals is not None else NO_LITERAL
    if not isinstance(pattern, str):
        return False
    try:
        if "like" in key:
            like_source(pattern)
            return True
        return not compile_regex(pattern, "i" if key.startswith("imatch") else "").ascii_only
    except Failure:
        return False


for _name, _stem, _negated, _insensitive, _sql in (
    ("~~", "like", False, False, "LIKE"),
    ("!~~", "not_like", True, False, "NOT LIKE"),
    ("~~*", "ilike", False, True, None),
    ("!~~*", "not_ilike", True, True, None),
):
    _render = _like_sql(_sql) if _sql else None
    declare(
        _name,
        "text text",
        "bool",
        _like(_negated, _insensitive),
        stem=_stem,
        fallible=True,
        duckdb=_render,
        spark=_render,
    )
for _name, _stem, _negated, _insensitive in (
    ("~", "match", False, False),
    ("!~", "not_match", True, False),
    ("~*", "imatch", False, True),
    ("!~*", "not_imatch", True, True),
):
    declare(_name, "text text", "bool", _matches(_negated, _insensitive), stem=_stem, fallible=True)
for _name in ("~~", "!~~", "~~*", "!~~*", "~", "!~", "~*", "!~*"):
    from foreshore.expr.functions.function import SCALARS

    # Not the first of that name: `~` is an operator of integers, too.
    _function = next(o.function for o in SCALARS[_name] if o.patterns == ("text", "text"))
    for _t in ("name", "bpchar"):
        overload(_name, f"{_t} text", _function)

declare("like_escape", "text text", "text", _rows(like_escape), fallible=True)
declare("similar_to_escape", "text", "text", _rows(similar_to_escape), fallible=True)
declare("similar_to_escape", "text text", "text", _rows(similar_to_escape), fallible=True)
declare("regexp_replace", "text text text", "text", _rows(regexp_replace), fallible=True)
declare("regexp_replace", "text text text text", "text", _rows(regexp_replace), fallible=True)
declare("regexp_match", "text text", "text[]", _rows(regexp_match), fallible=True)
declare("regexp_match", "text text text", "text[]", _rows(regexp_match), fallible=True)
declare("regexp_split_to_array", "text text", "text[]", _rows(regexp_split), fallible=True)
declare("regexp_split_to_array", "text text text", "text[]", _rows(regexp_split), fallible=True)
declare("regexp_count", "text text", "int4", _rows(_count), fallible=True)
declare("regexp_like", "text text", "bool", _matches(False, False), fallible=True)
declare(
    "substring", "text text", "text", _rows(_substring_regex), stem="substring_regex", fallible=True
)
declare_table("regexp_split_to_table", "text text", "text[]", _rows(regexp_split), fallible=True)
declare_table(
    "regexp_split_to_table", "text text text", "text[]", _rows(regexp_split), fallible=True
)


def _all_matches(text: str, pattern: str, flags: str = "") -> tuple[tuple[str | None, ...], ...]:
    regex = compile_regex(pattern, _flags_of(flags, allow_global=True))
    first = find(regex, text)
    matches = find_all(regex, text) if "g" in flags else [] if first is None else [first]
    return tuple(_captured(regex, text, bounds) for bounds in matches)


for _args in ("text text", "text text text"):
    declare_table(
        "regexp_matches",
        _args,
        lambda types, literals: array_of(array_of(TEXT)),
        _rows(_all_matches),
        fallible=True,
    )
