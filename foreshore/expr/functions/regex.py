r"""Regular expressions: PostgreSQL's (ARE) on engines that are not it.

A pattern is translated token by token. Whether there is a match does not depend on which match an
engine prefers, so tests run on RE2 (through Arrow) where it knows the same classes, else on
Python's engine. Where the match is to be shown, POSIX's longest (or, for a non-greedy expression,
shortest) one is found by trying the ends; captures are given only where greediness is not mixed and
the order of alternatives makes no difference. What is not certain to mean the same is refused, not
guessed.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from foreshore.expr.functions.rows import Failure, fail

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": " \\t\\n\\v\\f\\r", "blank": " \\t", "punct": "!-/:-@\\[-`{-~", "xdigit": "0-9a-fA-F",
    "cntrl": "\\x00-\\x1f\\x7f", "print": " -~", "graph": "!-~", "word": "a-zA-Z0-9_",
}  # fmt: skip
_ASCII_ONLY = frozenset(_CLASSES) - {"digit", "xdigit", "blank"}
_CHARACTERS = {
    "a": "\\x07", "b": "\\x08", "e": "\\x1b", "f": "\\f",
    "n": "\\n", "r": "\\r", "t": "\\t", "v": "\\v",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Regex:
    """A translated expression."""

    source: str
    compiled: "re.Pattern[str]"
    reordered: "re.Pattern[str] | None"  # with the order of alternatives reversed, if it has any
    groups: int
    greedy: bool | None  # None where no quantifier says
    mixed: bool
    linear: str | None  # for RE2
    unicode: bool  # means the same on RE2 and for ASCII classes only over ASCII text
    ascii_only: bool
    simple: bool  # what Python prefers is what POSIX does
    delimited: bool  # what is beyond the end of a match may matter to it


def invalid(reason: str) -> Failure:
    """Return the failure of a pattern that is none."""
    return fail("2201B", f"invalid regular expression: {reason}")


def unsupported(what: str) -> Failure:
    """Return the failure of a pattern that we cannot run exactly."""
    return fail("0A000", f"regular expressions with {what} are not supported")


class _Translator:
    def __init__(self, pattern: str, newline: bool, extended: bool) -> None:
        self.pattern = pattern
        self.at = 0
        self.newline = newline
        self.extended = extended
        self.out: list[str] = []
        self.groups = 0
        self.preferences: list[bool] = []
        self.lookaround = False
        self.unicode = False
        self.ascii_only = False
        self.branches = False
        self.depth = 0
        self.quantifiable = False
        self.group_last = False  # the last atom is a group
        self.simple = True  # no quantifier applies to a group

    def run(self) -> str:
        while self.at < len(self.pattern):
            self.step(self.pattern[self.at])
        if self.depth:
            raise invalid("parentheses () not balanced")
        return "".join(self.out)

    def emit(self, text: str, *, atom: bool = True) -> None:
        self.group_last = False
        self.out.append(text)
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
                if not self.depth:
                    self.emit("\\)")
                else:
                    self.depth -= 1
                    self.emit(")")
                    self.group_last = True
            case "|":
                self.branches = True
                self.emit("|", atom=False)
            case "*" | "+" | "?":
                self.quantify(c)
            case "{":
                self.bounds()
            case "^":
                self.emit("(?m:^)" if self.newline else "\\A", atom=False)
            case "$":
                self.emit("(?m:$)" if self.newline else "\\Z", atom=False)
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
        rest = self.pattern[self.at :]
        self.depth += 1
        if rest.startswith("?"):
            for start in ("?:", "?=", "?!", "?<=", "?<!"):
                if rest.startswith(start):
                    self.at += len(start)
                    if start != "?:":
                        self.lookaround = True
                    self.emit("(" + start, atom=False)
                    return
            if rest.startswith("?#"):
                end = self.pattern.find(")", self.at)
                if end < 0:
                    raise invalid("parentheses () not balanced")
                self.at, self.depth = end + 1, self.depth - 1
                return
            raise invalid("quantifier operand invalid")
        self.groups += 1
        self.emit("(", atom=False)

    def quantify(self, text: str) -> None:
        if not self.quantifiable:
            raise invalid("quantifier operand invalid")
        if self.group_last:
            self.simple = False
        greedy = True
        if self.pattern[self.at : self.at + 1] == "?":
            self.at += 1
            greedy = False
        self.preferences.append(greedy)
        self.emit(text + ("" if greedy else "?"), atom=False)

    def bounds(self) -> None:
        found = re.compile(r"(\d+)(,(\d*))?\}").match(self.pattern, self.at)
        if found is None:
            if self.pattern[self.at : self.at + 1].isdigit():
                raise invalid("invalid repetition count(s)")
            self.emit("\\{")
            return
        low, high = int(found[1]), int(found[3]) if found[3] else None
        if low > 255 or (high is not None and (high > 255 or high < low)):
            raise invalid("invalid repetition count(s)")
        self.at = found.end()
        if found[2] is None:
            # {m} says nothing of greediness.
            if not self.quantifiable:
                raise invalid("quantifier operand invalid")
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
                self.unicode = True
                self.emit("\\" + c)
            case "y" | "Y":
                self.unicode = True
                self.emit("\\b" if c == "y" else "\\B", atom=False)
            case "m" | "M":
                self.unicode = self.lookaround = True
                self.emit("\\b(?=\\w)" if c == "m" else "\\b(?<=\\w)", atom=False)
            case "A" | "Z":
                self.emit("\\" + c, atom=False)
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
            case _ if c.isdigit():
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
        if negated and self.newline:
            items.append("\\n")
        self.emit("[" + ("^" if negated else "") + "".join(items) + "]")

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
        """Return one character, or a class escape as it stands in the translation."""
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
            self.unicode = True
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
    """Return the translation; raises `Failure` where the pattern is invalid or refused."""
    if len(pattern) > 10_000:
        raise unsupported("more than 10000 characters")
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
    source = translator.run()
    options = re.IGNORECASE if ignore else re.NOFLAG
    try:
        compiled = re.compile(source, options)
    except re.error as error:
        raise invalid(str(error)) from None
    preferences = translator.preferences
    greedy = preferences[0] if preferences else None
    if translator.branches and _has_top_branch(source):
        greedy = True if preferences else None
    linear = None
    if not translator.lookaround:
        linear = ("(?i)" if ignore else "") + source.replace("\\Z", "\\z")
    return Regex(
        source,
        compiled,
        _reversed_alternatives(source, options) if translator.branches else None,
        translator.groups,
        greedy,
        len(set(preferences)) > 1,
        linear,
        translator.unicode or ignore,
        translator.ascii_only,
        translator.simple and not translator.branches and len(set(preferences)) <= 1,
        translator.lookaround or any(mark in source for mark in ("\\Z", "(?m:$)", "\\b", "\\B")),
    )


def _has_top_branch(source: str) -> bool:
    from re import _parser  # type: ignore[attr-defined]

    tree = _parser.parse(source)
    return any(str(op) == "BRANCH" for op, _ in tree)


def _reversed_alternatives(source: str, options: int) -> "re.Pattern[str] | None":
    """Return the expression with each choice's alternatives in reverse order."""
    from re import _compiler, _parser  # type: ignore[attr-defined]

    tree = _parser.parse(source, options)

    def turn(node: Any) -> None:
        for i, (op, arg) in enumerate(list(node)):
            if str(op) == "BRANCH":
                for branch in arg[1]:
                    turn(branch)
                node[i] = (op, (arg[0], list(reversed(arg[1]))))
            else:
                for part in arg if isinstance(arg, tuple) else ():
                    if isinstance(part, _parser.SubPattern):
                        turn(part)

    turn(tree)
    compiled: re.Pattern[str] = _compiler.compile(tree, options)
    return compiled


def check_text(regex: Regex, text: str) -> None:
    """Refuse text over which our classes are not the server's."""
    if regex.ascii_only and not text.isascii():
        raise unsupported("character classes over text that is not ASCII")


def find(regex: Regex, text: str, start: int = 0) -> tuple[int, int] | None:
    """Return the bounds of the first match at or after `start`, as POSIX prefers it."""
    check_text(regex, text)
    found = regex.compiled.search(text, start)
    if found is None:
        return None
    begin = found.start()
    if regex.simple or (regex.greedy is None and regex.reordered is None):
        return begin, found.end()
    ends = range(begin, len(text) + 1) if regex.greedy is False else range(len(text), begin - 1, -1)
    for end in ends:
        if _whole(regex, text, begin, end) is not None:
            return begin, end
    return begin, found.end()


def _whole(regex: Regex, text: str, begin: int, end: int) -> "re.Match[str] | None":
    r"""Return the match of exactly [begin, end), with all of `text` in view.

    The end is given by an assertion, not by cutting the text, for `$` and \\b look beyond it.
    """
    if not regex.delimited:
        return regex.compiled.fullmatch(text, begin, end)
    return _bounded(regex.compiled, len(text) - end).match(text, begin)


@lru_cache(2048)
def _bounded(compiled: "re.Pattern[str]", rest: int) -> "re.Pattern[str]":
    return re.compile(
        f"(?:{compiled.pattern})(?=(?s:.){{{rest}}}\\Z)", compiled.flags & re.IGNORECASE
    )


def captures(regex: Regex, text: str, bounds: tuple[int, int]) -> list[str | None]:
    """Return what the groups of a match captured; refuses where engines may differ."""
    if regex.mixed:
        raise unsupported("both greedy and non-greedy quantifiers and captures")
    found = _whole(regex, text, *bounds)
    assert found is not None, (regex.source, text, bounds)
    groups = list(found.groups())
    if regex.reordered is not None:
        other = _reordered_whole(regex, text, *bounds)
        if other is None or list(other) != groups:
            raise unsupported("alternatives that can capture in several ways")
    return groups


def _reordered_whole(
    regex: Regex, text: str, begin: int, end: int
) -> tuple[str | None, ...] | None:
    assert regex.reordered is not None
    found = regex.reordered.match(text, begin)
    if found is not None and found.end() == end:
        return found.groups()
    found = regex.reordered.fullmatch(text, begin, end)
    return None if found is None else found.groups()


def find_all(regex: Regex, text: str) -> list[tuple[int, int]]:
    """Return the bounds of all matches, none overlapping, as with the flag g."""
    out: list[tuple[int, int]] = []
    at = 0
    while at <= len(text):
        bounds = find(regex, text, at)
        if bounds is None:
            break
        out.append(bounds)
        at = bounds[1] + 1 if bounds[0] == bounds[1] else bounds[1]
    return out
