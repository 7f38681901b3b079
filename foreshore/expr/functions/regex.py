"""Translate PostgreSQL's regular expressions (ARE) for engines with other rules.

A pattern is translated token by token for three engines at once (`regex_match` chooses among them).
Where the match itself is needed, POSIX's longest match (or, for a non-greedy expression, the
shortest) is found. Captures are available only if greediness is not mixed and the order of
alternatives makes no difference. Patterns that are not certain to mean the same are rejected.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import re2

from foreshore.digits import is_digits
from foreshore.expr.functions.rows import Failure, fail

MOST_CHARACTERS = 10_000
DEEPEST = 100  # maximum nesting of parentheses
MOST_STEPS = 1 << 20  # worst case for a backtracking engine: some ten milliseconds

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": " \\t\\n\\v\\f\\r", "blank": " \\t", "punct": "!-/:-@\\[-`{-~", "xdigit": "0-9a-fA-F",
    "cntrl": "\\x00-\\x1f\\x7f", "print": " -~", "graph": "!-~", "word": "a-zA-Z0-9_",
}  # fmt: skip
# The characters that Python's engines match by \\s and \\w, within brackets of RE2.
_UNICODE = {"s": "\\t-\\r\\x1c-\\x20\\x{85}\\pZ", "w": "\\pL\\pN_"}
_ASCII_ONLY = frozenset(_CLASSES) - {"digit", "xdigit", "blank"}
_CHARACTERS = {
    "a": "\\x07", "b": "\\x08", "e": "\\x1b", "f": "\\f",
    "n": "\\n", "r": "\\r", "t": "\\t", "v": "\\v",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """An expression for Python's `re` and `regex`, and for RE2 if possible."""

    python: str
    compiled: "re.Pattern[str]"
    linear: str | None


@dataclass(frozen=True, slots=True)
class Regex:
    """A translated expression."""

    source: Source
    # With the order of alternatives reversed and groups named g1, g2, ..., if there are any.
    reordered: Source | None
    groups: int
    ignore_case: bool
    greedy: bool | None  # None if no quantifier decides
    mixed: bool
    boundaries: bool  # has word boundaries, which RE2 supports for ASCII only
    ascii_only: bool
    simple: bool  # the engines' preferred match is POSIX's
    preferred: bool  # like `simple`, or all matches at one place have the same length
    delimited: bool  # text beyond the end of a match may matter
    short: int  # the greatest length of a text over which backtracking takes few steps
    empty_loops: bool  # repeats groups that may be empty, whose captures depend on the engine


def invalid(reason: str) -> Failure:
    """Return the failure of an invalid pattern."""
    return fail("2201B", f"invalid regular expression: {reason}")


def too_complex() -> Failure:
    """Return the failure of a pattern that is too large for the engines."""
    return invalid("regular expression is too complex")


def unsupported(what: str) -> Failure:
    """Return the failure of a pattern that cannot be matched exactly."""
    return fail("0A000", f"regular expressions with {what} are not supported")


class _Least:
    """The least length of a match of each part that is being translated."""

    def __init__(self) -> None:
        self.of_last = 0  # the last atom
        self._branch = 0  # what there is of the current branch
        self._before: list[int | None] = [None]  # the least of the branches before it
        self._outer: list[tuple[int, bool]] = []  # before each open group; whether it counts

    def add(self, length: int) -> None:
        """Add an atom."""
        self.of_last = length
        self._branch += length

    def omit_last(self) -> None:
        """Make the last atom optional."""
        self._branch -= self.of_last

    def branch(self) -> None:
        """Begin another branch."""
        self._before[-1] = self._least()
        self._branch = 0

    def open(self, *, counts: bool = True) -> None:
        """Begin a group; one that looks around does not count."""
        self._outer.append((self._branch, counts))
        self._before.append(None)
        self._branch = 0

    def close(self) -> None:
        """End a group, which becomes the last atom."""
        least = self._least()
        self._before.pop()
        self._branch, counts = self._outer.pop()
        self.add(least if counts else 0)

    def _least(self) -> int:
        before = self._before[-1]
        return self._branch if before is None else min(before, self._branch)


class _Translator:
    def __init__(self, pattern: str, newline: bool, extended: bool) -> None:
        self.pattern = pattern
        self.at = 0
        self.newline = newline
        self.extended = extended
        self.out: list[str] = []  # for Python's engines
        self.linear: list[str] = []  # for RE2, the same tokens
        self.groups = 0
        # Greediness of quantifiers and alternatives; the first determines that of the whole.
        self.preferences: list[bool] = []
        self.quantified: set[bool] = set()
        self.backtracks = False  # needs backtracking, which RE2 does not support
        self.boundaries = False
        self.ascii_only = False
        self.branches = False
        self.quantifiable = False
        # Numbers of choices and preferences before each open group.
        self.opened: list[tuple[int, int]] = []
        self.least = _Least()
        self.empty_loops = False
        self.group_at = 0  # number of preferences before the last atom, a group
        self.group_last = False  # the last atom is a group
        self.choosing_last = False  # and it contains choices
        self.simple = True  # no quantifier applies to a group
        self.loops = 0  # quantifiers with an unbounded number of repetitions
        self.forks = 0  # alternatives and optional parts
        self.nested = False  # a quantifier applies to a part with choices

    def run(self) -> None:
        while self.at < len(self.pattern):
            self.step(self.pattern[self.at])
        if self.opened:
            raise invalid("parentheses () not balanced")

    def emit(self, text: str, *, atom: bool = True, linear: str | None = None) -> None:
        self.group_last = self.choosing_last = False
        if atom:
            self.least.add(1)
        self.out.append(text)
        self.linear.append(text if linear is None else linear)
        self.quantifiable = atom

    def step(self, c: str) -> None:
        self.at += 1
        match c:
            case "\\":
                self.escape()
            case "[":
                self.bracket()
            case "(":
                self.open()
            case ")":
                if not self.opened:
                    self.emit("\\)")
                else:
                    choices, at = self.opened.pop()
                    self.emit(")", atom=False)
                    self.quantifiable = True
                    self.least.close()
                    self.group_at = at
                    self.group_last = True
                    self.choosing_last = self.loops + self.forks > choices
            case "|":
                self.branches = True
                self.forks += 1
                self.preferences.insert(self.opened[-1][1] if self.opened else 0, True)
                self.least.branch()
                self.emit("|", atom=False)
            case "*" | "+" | "?":
                self.quantify(c)
            case "{":
                self.bounds()
            case "^":
                self.emit("(?m:^)" if self.newline else "\\A", atom=False)
            case "$":
                self.at_end()
            case ".":
                self.emit("[^\\n]" if self.newline else "(?s:.)")
            case " " | "\t" | "\n" | "\r" | "\f" | "\v" if self.extended:
                pass
            case "#" if self.extended:
                end = self.pattern.find("\n", self.at)
                self.at = len(self.pattern) if end < 0 else end
            case _:
                self.emit(re.escape(c))

    def open(self) -> None:
        rest = self.pattern[self.at : self.at + 3]
        self.opened.append((self.loops + self.forks, len(self.preferences)))
        if len(self.opened) > DEEPEST:
            raise too_complex()
        if rest.startswith("?"):
            for start in ("?:", "?=", "?!", "?<=", "?<!"):
                if rest.startswith(start):
                    self.at += len(start)
                    self.least.open(counts=start == "?:")
                    if start != "?:":
                        self.backtracks = True
                    self.emit("(" + start, atom=False)
                    return
            if rest.startswith("?#"):
                end = self.pattern.find(")", self.at)
                if end < 0:
                    raise invalid("parentheses () not balanced")
                self.at = end + 1
                self.opened.pop()
                return
            raise invalid("quantifier operand invalid")
        self.groups += 1
        self.least.open()
        self.emit("(", atom=False)

    def at_end(self) -> None:
        if self.newline:
            self.emit("(?m:$)", atom=False)
        else:
            self.emit("\\Z", atom=False, linear="\\z")

    def quantify(self, text: str) -> None:
        if not self.quantifiable:
            raise invalid("quantifier operand invalid")
        if self.group_last:
            self.simple = False
        self.nested = self.nested or (self.choosing_last and text != "?")
        if text == "?":
            self.forks += 1
        else:
            self.loops += 1
            self.empty_loops |= self.group_last and not self.least.of_last
        if text[0] in "*?" or text.startswith("{0,"):
            self.least.omit_last()
        greedy = True
        if self.pattern[self.at : self.at + 1] == "?":
            self.at += 1
            greedy = False
        self.quantified.add(greedy)
        at = self.group_at if self.group_last else len(self.preferences)
        self.preferences.insert(at, greedy)
        self.emit(text + ("" if greedy else "?"), atom=False)

    def bounds(self) -> None:
        found = re.compile(r"([0-9]+)(,([0-9]*))?\}").match(self.pattern, self.at)
        if found is None:
            if is_digits(self.pattern[self.at : self.at + 1]):
                raise invalid("invalid repetition count(s)")
            self.emit("\\{")
            return
        if max(len(found[1]), len(found[3] or "")) > 9:
            raise invalid("invalid repetition count(s)")
        low, high = int(found[1]), int(found[3]) if found[3] else None
        if low > 255 or (high is not None and (high > 255 or high < low)):
            raise invalid("invalid repetition count(s)")
        self.at = found.end()
        if found[2] is None:
            # {m} does not affect greediness.
            if not self.quantifiable:
                raise invalid("quantifier operand invalid")
            self.nested = self.nested or self.choosing_last
            self.empty_loops |= self.group_last and not self.least.of_last
            if low == 0:
                self.least.omit_last()
            if self.pattern[self.at : self.at + 1] == "?":
                self.at += 1
            self.emit("{" + found[1] + "}", atom=False)
            return
        self.quantify("{" + found[1] + "," + (found[3] or "") + "}")

    def escape(self) -> None:
        if self.at >= len(self.pattern):
            raise invalid("invalid escape \\ sequence")
        c = self.pattern[self.at]
        self.at += 1
        match c:
            case "d" | "D":
                self.emit("[0-9]" if c == "d" else "[^0-9]")
            case "s" | "S" | "w" | "W":
                negation = "^" if c.isupper() else ""
                self.emit("\\" + c, linear=f"[{negation}{_UNICODE[c.lower()]}]")
            case "y" | "Y":
                self.boundaries = True
                self.emit("\\b" if c == "y" else "\\B", atom=False)
            case "m" | "M":
                self.backtracks = True
                self.emit("\\b(?=\\w)" if c == "m" else "\\b(?<=\\w)", atom=False)
            case "A":
                self.emit("\\A", atom=False)
            case "Z":
                self.emit("\\Z", atom=False, linear="\\z")
            case "B":
                self.emit("\\\\")
            case "x":
                found = re.compile(r"[0-9a-fA-F]+").match(self.pattern, self.at)
                if found is None:
                    raise invalid("invalid escape \\ sequence")
                self.at = found.end()
                self.emit(re.escape(chr(int(found[0][-6:], 16) % 0x110000)))
            case "u" | "U":
                size = 4 if c == "u" else 8
                digits = self.pattern[self.at : self.at + size]
                if not re.fullmatch(f"[0-9a-fA-F]{{{size}}}", digits):
                    raise invalid("invalid escape \\ sequence")
                self.at += size
                self.emit(re.escape(chr(min(int(digits, 16), 0x10FFFF))))
            case _ if c in _CHARACTERS:
                self.emit(_CHARACTERS[c])
            case _ if is_digits(c):
                if c == "0":
                    raise unsupported("octal escapes")
                raise unsupported("back references")
            case _ if c.isalnum():
                if c == "c":
                    raise unsupported("control escapes")
                raise invalid("invalid escape \\ sequence")
            case _:
                self.emit(re.escape(c))

    def bracket(self) -> None:
        negated = self.pattern[self.at : self.at + 1] == "^"
        if negated:
            self.at += 1
        items: list[str] = []
        linear: list[str] = []
        first = True
        while True:
            if self.at >= len(self.pattern):
                raise invalid("brackets [] not balanced")
            c = self.pattern[self.at]
            if c == "]" and not first:
                self.at += 1
                break
            first = False
            if self.pattern.startswith("[:", self.at):
                items.append(self.named_class())
                linear.append(items[-1])
                continue
            if self.pattern.startswith(("[.", "[="), self.at):
                raise unsupported("collating elements")
            start = self.bracket_character()
            if (
                self.pattern[self.at : self.at + 1] == "-"
                and self.pattern[self.at + 1 : self.at + 2] not in ("]", "")
                and len(start) == 1
            ):
                self.at += 1
                end = self.bracket_character()
                if len(end) != 1 or ord(end) < ord(start):
                    raise invalid("invalid character range")
                items.append(f"{_in_class(start)}-{_in_class(end)}")
            else:
                items.append(_in_class(start) if len(start) == 1 else start)
            linear.append(_UNICODE.get(items[-1][1:], items[-1]) if len(start) > 1 else items[-1])
        if negated and self.newline:
            items.append("\\n")
            linear.append("\\n")
        opening = "[^" if negated else "["
        self.emit(f"{opening}{''.join(items)}]", linear=f"{opening}{''.join(linear)}]")

    def named_class(self) -> str:
        end = self.pattern.find(":]", self.at)
        name = self.pattern[self.at + 2 : end] if end > 0 else ""
        if name not in _CLASSES:
            raise invalid("invalid character class")
        self.at = end + 2
        if name in _ASCII_ONLY:
            self.ascii_only = True
        return _CLASSES[name]

    def bracket_character(self) -> str:
        """Return one character, or a class escape as translated."""
        c = self.pattern[self.at]
        self.at += 1
        if c != "\\":
            return c
        if self.at >= len(self.pattern):
            raise invalid("invalid escape \\ sequence")
        c = self.pattern[self.at]
        self.at += 1
        if c == "d":
            return "0-9"
        if c in "sw":
            return "\\" + c
        if c in "SWD":
            raise unsupported("negated classes within brackets")
        named = {
            "a": "\a",
            "b": "\b",
            "e": "\x1b",
            "f": "\f",
            "n": "\n",
            "r": "\r",
            "t": "\t",
            "v": "\v",
        }
        if c in named:
            return named[c]
        if c.isalnum():
            raise unsupported("such escapes within brackets")
        return c


def _in_class(c: str) -> str:
    return "\\" + c if c in "\\]^-[&~|" else c


@lru_cache(512)
def compile_regex(pattern: str, flags: str = "") -> Regex:
    """Return the translation; raises `Failure` if the pattern is invalid or rejected."""
    if len(pattern) > MOST_CHARACTERS:
        raise too_complex()
    if pattern.startswith("***"):
        if pattern.startswith("***="):
            return compile_regex(re.sub(r"([^\w\s])", r"\\\1", pattern[4:]), flags)
        if not pattern.startswith("***:"):
            raise invalid("quantifier operand invalid")
        pattern = pattern[4:]
    embedded = re.match(r"\(\?([a-z]+)\)", pattern)
    if embedded is not None:
        flags, pattern = flags + embedded[1], pattern[embedded.end() :]
    ignore, newline, extended, literal = False, False, False, False
    for flag in flags:
        match flag:
            case "i":
                ignore = True
            case "c":
                ignore = False
            case "s":
                newline = False
            case "n" | "m":
                newline = True
            case "x":
                extended = True
            case "t":
                extended = False
            case "q":
                literal = True
            case "e" | "g":
                pass
            case _:
                raise unsupported(f'the option "{flag}"')
    if literal:
        pattern = re.sub(r"([^\w\s])", r"\\\1", pattern)
    translator = _Translator(pattern, newline, extended)
    translator.run()
    source = _source("".join(translator.out), "".join(translator.linear), translator, ignore)
    preferences = translator.preferences
    greedy = preferences[0] if preferences else None
    mixed = len(translator.quantified) > 1
    simple = translator.simple and not translator.branches and not mixed
    return Regex(
        source,
        _reordered(translator, ignore) if translator.branches else None,
        translator.groups,
        ignore,
        greedy,
        mixed,
        translator.boundaries,
        translator.ascii_only,
        simple,
        simple or (greedy is None and not translator.branches),
        translator.backtracks
        or any(mark in source.python for mark in ("\\Z", "(?m:$)", "\\b", "\\B")),
        _short(translator, simple=simple),
        translator.empty_loops and translator.groups > 0,
    )


def _source(python: str, linear: str, translator: _Translator, ignore: bool) -> Source:
    """Return a compiled expression; raises `Failure` if it is invalid."""
    try:
        compiled = re.compile(python, re.IGNORECASE if ignore else re.NOFLAG)
    except re.error as error:
        raise invalid(str(error)) from None
    except (RecursionError, OverflowError):
        raise too_complex() from None
    return Source(python, compiled, None if translator.backtracks else _for_re2(linear, ignore))


def _for_re2(tokens: str, ignore: bool) -> str | None:
    """Return the expression for RE2, or None if it is too large."""
    source = ("(?i)" if ignore else "") + tokens
    try:
        linear_engine(source)
    except re2.error:  # RE2 limits repetitions, for example
        return None
    return source


@lru_cache(512)
def linear_engine(source: str, *, longest: bool = False) -> "re2._Regexp[str]":
    """Return an RE2 expression that prefers the `longest` match, or else the first."""
    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    return re2.compile(source, options)


def _short(translator: _Translator, *, simple: bool) -> int:
    """Return the greatest length of a text for which backtracking certainly takes few steps.

    Without nested quantifiers, a path through the expression is determined by its start, the end of
    each loop, and the fork taken at each choice.
    """
    loops, forks = translator.loops, translator.forks
    if translator.nested or forks > 20:
        return -1
    most = MOST_STEPS >> forks
    length = -1
    for step in (1 << i for i in range(20, -1, -1)):
        tried = length + step
        ways = comb(tried + loops + 1, loops + 1)
        if (ways if simple else ways * tried) <= most:
            length = tried
    return length


def _reversed(tokens: Sequence[str]) -> str:
    """Return an expression with the alternatives in reverse order on all levels.

    Groups are named by their numbers, as their order changes.
    """
    groups = 0
    levels: list[tuple[str, list[list[str]]]] = [("", [[]])]
    for token in tokens:
        if token.startswith("(") and not token.endswith(")"):
            if token == "(":
                groups += 1
                token = f"(?P<g{groups}>"
            levels.append((token, [[]]))
        elif token == ")":
            opening, alternatives = levels.pop()
            levels[-1][1][-1].append(f"{opening}{_joined(alternatives)})")
        elif token == "|":
            levels[-1][1].append([])
        else:
            levels[-1][1][-1].append(token)
    return _joined(levels[0][1])


def _joined(alternatives: list[list[str]]) -> str:
    return "|".join("".join(each) for each in reversed(alternatives))


def _reordered(translator: _Translator, ignore: bool) -> Source:
    """Return the expression with each choice's alternatives in reverse order."""
    return _source(_reversed(translator.out), _reversed(translator.linear), translator, ignore)
