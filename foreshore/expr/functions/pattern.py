"""Pattern matching: LIKE, SIMILAR TO and regular expressions."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.digits import is_digits
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
from foreshore.expr.functions.like import MOST_CHARACTERS, like, like_checked, like_expression
from foreshore.expr.functions.regex import Regex, compile_regex
from foreshore.expr.functions.regex_match import Bounds, Matching, captures, find_all, matching
from foreshore.expr.functions.rows import (
    Failure,
    WithSingle,
    collect,
    fail,
    only_value,
    rowwise,
)
from foreshore.expr.functions.text import to_lower
from foreshore.types import TEXT, array_of

MOST_RUNS = 2  # maximum number of `%` in a pattern that a backtracking engine may match


def _like(negated: bool, insensitive: bool) -> Kernel:
    def one(text: str, pattern: str) -> bool:
        if insensitive:
            text, pattern = to_lower(text), to_lower(pattern)
        return like(text, pattern) != negated

    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        pattern = only_value(b) if len(a) > 4 else None
        if pattern is not None and len(pattern) <= MOST_CHARACTERS:
            found = _by_re2(a, pattern, insensitive)
            if found is not None:
                return pc.invert(found) if negated else found
        return rowwise(types, one, a, b)

    return WithSingle(kernel, lambda types: one)


def _by_re2(a: pa.Array, pattern: str, insensitive: bool) -> pa.Array | None:
    """Return which of `a` are like `pattern`, or None if each row must be matched separately."""
    if insensitive and pc.all(pc.string_is_ascii(a)).as_py() is False:
        return None  # RE2 would need more characters for the same pattern
    if "\\" not in pattern:
        return pc.match_like(a, pattern, ignore_case=insensitive)
    try:
        source = like_expression(pattern)
    except Failure:
        return None
    return pc.match_substring_regex(a, source, ignore_case=insensitive)


def like_escape(pattern: str, escape: str) -> str:
    """Return a LIKE pattern with another escape character rewritten to use the backslash."""
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
        return matching(regex, text).matches() != negated

    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        pattern = only_value(b) if len(a) > 4 else None
        if pattern is None:
            return rowwise(types, one, a, b)
        try:
            regex = compile_regex(pattern, flags)
        except Failure as failure:
            return pa.nulls(len(a), pa.bool_()), pa.array([failure.text] * len(a))
        delicate = regex.boundaries or regex.ascii_only
        linear = regex.source.linear
        if linear is None or (delicate and pc.all(pc.string_is_ascii(a)).as_py() is False):
            return rowwise(types, one, a, b)
        found = pc.match_substring_regex(a, linear)
        return pc.invert(found) if negated else found

    return kernel


def flags_of(flags: str, function_without_global: str | None = None) -> str:
    """Return the options except "g"; fails for a function that does not accept "g"."""
    for flag in flags:
        if flag not in "gicnmpwqstxeb":
            raise fail("22023", f'invalid regular expression option: "{flag}"')
        if flag == "g" and function_without_global is not None:
            raise fail("22023", f'{function_without_global}() does not support the "global" option')
    return flags.replace("g", "")


def regexp_replace(text: str, pattern: str, replacement: str, flags: str = "") -> str:
    """Return `text` with the first match replaced, or all with the flag g."""
    if is_digits(flags[:1]):
        raise fail("22023", f'invalid regular expression option: "{flags[0]}"')
    regex = compile_regex(pattern, flags_of(flags))
    found = matching(regex, text)
    matches = _matches_in(found, text, flags)
    out: list[str] = []
    at = 0
    needs_groups = re.search(r"\\[1-9]", replacement) is not None
    for begin, end in matches:
        groups = captures(regex, found, (begin, end)) if needs_groups and regex.groups else []
        out += [text[at:begin], expanded(replacement, text[begin:end], groups)]
        at = end
    return "".join(out) + text[at:]


def expanded(replacement: str, whole: str, groups: list[str | None]) -> str:
    """Return the replacement of a match, with its references to the match's parts."""

    def one(match: "re.Match[str]") -> str:
        c = match[1]
        if c == "&":
            return whole
        if is_digits(c) and c != "0":
            index = int(c) - 1
            return (groups[index] or "") if index < len(groups) else ""
        return "\\" if c == "\\" else match[0]

    return re.sub(r"\\(.)", one, replacement, flags=re.DOTALL)


def regexp_match(text: str, pattern: str, flags: str = "") -> tuple[str | None, ...] | None:
    """Return the captures of the first match, or the whole match if there are no groups."""
    regex = compile_regex(pattern, flags_of(flags, "regexp_match") if flags else "")
    found = matching(regex, text)
    bounds = found.find()
    return None if bounds is None else _captured(regex, found, text, bounds)


def _matches_in(found: Matching, text: str, flags: str) -> list[Bounds]:
    """Return the first match, or all matches with the flag g."""
    if "g" in flags:
        return find_all(found, text)
    first = found.find()
    return [] if first is None else [first]


def _captured(regex: Regex, found: Matching, text: str, bounds: Bounds) -> tuple[str | None, ...]:
    if not regex.groups:
        return (text[bounds[0] : bounds[1]],)
    return tuple(captures(regex, found, bounds))


def _substring_regex(text: str, pattern: str) -> str | None:
    regex = compile_regex(pattern)
    found = matching(regex, text)
    bounds = found.find()
    if bounds is None:
        return None
    return captures(regex, found, bounds)[0] if regex.groups else text[bounds[0] : bounds[1]]


def regexp_split(text: str, pattern: str, flags: str = "", *, function: str) -> tuple[str, ...]:
    """Return the texts between the matches.

    An empty match does not split at the start, at the end or directly after another match.
    """
    regex = compile_regex(pattern, flags_of(flags, function))
    out: list[str] = []
    at = 0
    for begin, end in find_all(matching(regex, text), text):
        if begin < len(text) and end > at:
            out.append(text[at:begin])
            at = end
    out.append(text[at:])
    return tuple(out)


def _count(text: str, pattern: str) -> int:
    return len(find_all(matching(compile_regex(pattern), text), text))


def _is_like(text: str, pattern: str, flags: str) -> bool:
    return matching(compile_regex(pattern, flags_of(flags, "regexp_like")), text).matches()


def rows_of(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel that applies `compute` to each row; most columns hold one pattern."""

    def kernel(types: Signature, texts: pa.Array, *others: pa.Array) -> Outcome:
        columns = map(_values, others)
        return collect(types, compute, zip(texts.to_pylist(), *columns, strict=False))

    return kernel


def _values(array: pa.Array) -> Iterable[Any]:
    """Return the values of `array`; one repeated value is converted only once."""
    same = only_value(array) if len(array) > 4 else None
    return array.to_pylist() if same is None else repeat(same)


def _like_sql(operator: str) -> Rendering:
    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
        pattern = quoted_literal(args[1])
        if pattern is None or not _is_easy(pattern):
            return None
        return f"({args[0]} {operator} {args[1]})"

    return render


def _is_easy(pattern: str) -> bool:
    """Return whether backtracking engines match `pattern` in few steps."""
    return pattern.count("%") <= MOST_RUNS


def total_pattern(key: str, literals: Literals) -> bool:
    """Return whether matching a known pattern cannot fail."""
    pattern = literals[1] if literals is not None else NO_LITERAL
    if not isinstance(pattern, str):
        return False
    try:
        if "like" in key:
            like_checked(pattern)
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

    # Select by pattern, as `~` is also an operator of integers.
    _function = next(o.function for o in SCALARS[_name] if o.patterns == ("text", "text"))
    for _t in ("name", "bpchar"):
        overload(_name, f"{_t} text", _function)

declare("like_escape", "text text", "text", rows_of(like_escape), fallible=True)
declare("similar_to_escape", "text", "text", rows_of(similar_to_escape), fallible=True)
declare("similar_to_escape", "text text", "text", rows_of(similar_to_escape), fallible=True)
declare("regexp_replace", "text text text", "text", rows_of(regexp_replace), fallible=True)
declare("regexp_replace", "text text text text", "text", rows_of(regexp_replace), fallible=True)
declare("regexp_match", "text text", "text[]", rows_of(regexp_match), fallible=True)
declare("regexp_match", "text text text", "text[]", rows_of(regexp_match), fallible=True)
_split_to_array = rows_of(partial(regexp_split, function="regexp_split_to_array"))
_split_to_table = rows_of(partial(regexp_split, function="regexp_split_to_table"))
for _args in ("text text", "text text text"):
    declare("regexp_split_to_array", _args, "text[]", _split_to_array, fallible=True)
    declare_table("regexp_split_to_table", _args, "text[]", _split_to_table, fallible=True)
declare("regexp_count", "text text", "int4", rows_of(_count), fallible=True)
declare("regexp_like", "text text", "bool", _matches(False, False), fallible=True)
declare("regexp_like", "text text text", "bool", rows_of(_is_like), fallible=True)
declare(
    "substring",
    "text text",
    "text",
    rows_of(_substring_regex),
    stem="substring_regex",
    fallible=True,
)


_SEPARATOR = '"'
MOST_SEARCHED = 4_000  # of a text that substring(... SIMILAR ...) searches, in quadratic time


def _parted(pattern: str, escape: str) -> list[str]:
    """Return the parts between the separators, an escape and a double quote, of a pattern."""
    parts, at, start = [], 0, 0
    while at < len(pattern):
        if escape and pattern[at] == escape:
            if pattern[at + 1 : at + 2] == _SEPARATOR:
                parts.append(pattern[start:at])
                start = at + 2
            at += 1
        at += 1
    return [*parts, pattern[start:]]


def _substring_similar(text: str, pattern: str, escape: str) -> str | None:
    """Return the part of `text` between the separators: the first part is as short as can be."""
    if len(escape) > 1:
        raise fail("22025", "invalid escape string")
    parts = _parted(pattern, escape)
    if len(parts) > 3:
        raise fail(
            "2200C",
            "SQL regular expression may not contain more than two escape-double-quote separators",
        )
    before, middle, after = (
        compile_regex(similar_to_escape(part, escape))
        for part in (
            [*parts, ""] if len(parts) == 2 else parts if len(parts) == 3 else ["", *parts, ""]
        )
    )
    if len(parts) == 1:
        return text if matching(middle, text).matches() else None
    if len(text) > MOST_SEARCHED:
        raise fail("54000", f"substring by a pattern takes at most {MOST_SEARCHED} characters")
    size = len(text)
    ends = [at for at in range(size, -1, -1) if matching(after, text[at:]).matches()]
    for start in range(size + 1):
        if not matching(before, text[:start]).matches():
            continue
        for end in ends:
            if end >= start and matching(middle, text[start:end]).matches():
                return text[start:end]
    return None


declare(
    *("substring", "text text text", "text", rows_of(_substring_similar)),
    stem="substring_similar",
    fallible=True,
)


def _all_matches(text: str, pattern: str, flags: str = "") -> tuple[tuple[str | None, ...], ...]:
    regex = compile_regex(pattern, flags_of(flags))
    found = matching(regex, text)
    return tuple(
        _captured(regex, found, text, bounds) for bounds in _matches_in(found, text, flags)
    )


for _args in ("text text", "text text text"):
    declare_table(
        "regexp_matches",
        _args,
        lambda types, literals: array_of(array_of(TEXT)),
        rows_of(_all_matches),
        fallible=True,
    )
