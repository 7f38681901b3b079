"""The statements of a text that are run one after the other.

As in PostgreSQL, a syntax error anywhere in the text means that nothing of it runs. So all of the
text is parsed first; but the trees of the first statements only are kept. Later pieces are parsed
again when it is their turn: the trees of a text take 200 times its size.

A statement that differs from another one by its literals only (`shapes.py`) has the same syntax,
so it is not parsed before its turn, and then only if no plan is known for its shape.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from foreshore.sql.parse.dialects import read_in
from foreshore.sql.parse.parse import Statement, parse_piece
from foreshore.sql.parse.pieces import pieces
from foreshore.sql.parse.shapes import Shape, shape_of

KEPT = 1000  # statements, and those of the piece that reaches so many
LONGEST = 65_536  # characters of a piece that is looked at in one step
KEPT_UNREAD = 50_000  # statements that are not parsed
# A statement without comments, other quotes and bodies of functions.
_STATEMENT = re.compile(
    r"""\s*+(?P<body>(?P<plain>(?:select|insert|update|delete|values|with)\b)?+"""
    r"""(?:[^;'"$/\\-]++|(?<=\W[eE])'(?:[^'\\]++|\\[\s\S]|'')*+'"""
    r"""|(?<!\W[eE])'(?:[^']++|'')*+'|"[^"]*+"|-(?!-)|/(?!\*))*+)(?:;|\Z)""",
    re.IGNORECASE,
)
_BODY = re.compile(r"\batomic\b", re.IGNORECASE)


class Unread(msgspec.Struct, frozen=True):
    """A statement that has the syntax of another one: its range in the text, and its shape."""

    start: int
    end: int
    shape: Shape


def _never(key: str) -> bool:
    return False


class Script:
    """The statements of `text`; raises what parsing and translating it raise.

    `is_known` tells of the key of a shape whether a plan is known for it.
    """

    def __init__(
        self, dialect: str, text: str, is_known: Callable[[str], bool] | None = None
    ) -> None:
        with read_in(dialect, text) as self._text:
            self._is_translated = dialect != "postgres"
            self._is_known = is_known or _never
            self._read = set[str]()  # the shapes of statements that were parsed
            self.count = 0
            self.waiting = deque[Statement | Unread]()  # those that come next
            self._later: deque[tuple[int, int]] = deque()
            trees = 0
            for start, end in pieces(self._text):
                found = self._statements(start, end, takes_shapes=is_known is not None)
                self.count += len(found)
                if trees < KEPT and self.count - len(found) < KEPT_UNREAD:
                    self.waiting += found
                    trees += sum(isinstance(each, Statement) for each in found)
                elif found:
                    self._later.append((start, end))

    @classmethod
    def of(cls, statements: Sequence[Statement]) -> "Script":
        """Return the script of a text whose statements are known."""
        script = cls.__new__(cls)
        script.count, script.waiting = len(statements), deque[Statement | Unread](statements)
        return script

    @property
    def parsed(self) -> Sequence[Statement]:
        """The statements that come next, as far as they are parsed."""
        return [each for each in self.waiting if isinstance(each, Statement)]

    def go_on(self) -> None:
        """Parse the next piece of the text if all that was parsed has been taken."""
        if not self.waiting:
            start, end = self._later.popleft()
            self.waiting += self._statements(start, end, takes_shapes=True)

    def text_of(self, each: Statement | Unread) -> str:
        """Return the text of a statement."""
        return each.text if isinstance(each, Statement) else self._text[each.start : each.end]

    def read(self, each: Unread) -> Statement:
        """Return a statement that was not parsed."""
        (found,) = parse_piece(self._text, each.start, each.end)
        return found

    def _statements(
        self, start: int, end: int, *, takes_shapes: bool
    ) -> Sequence[Statement | Unread]:
        """Return the statements of a piece; those of known shapes are not parsed."""
        ranges = self._ranges(start, end) if takes_shapes and not self._is_translated else None
        if ranges is None:
            return self._marked(parse_piece(self._text, start, end))
        found: list[Statement | Unread] = []
        for at, until, body in ranges:
            shape = None if body is None else shape_of(self._text, *body)
            if shape is not None and (shape.key in self._read or self._is_known(shape.key)):
                found.append(Unread(at, until, shape))
                continue
            read = parse_piece(self._text, at, until)
            found += read
            if shape is not None and shape.values and len(read) == 1:
                self._read.add(shape.key)
        return found

    def _ranges(self, start: int, end: int) -> list[tuple[int, int, tuple[int, int] | None]] | None:
        """Return the ranges of the statements of a piece, and of what may have a shape.

        None: it is long, has what only the parser can separate, or is a single statement.
        """
        if end - start > LONGEST or _BODY.search(self._text, start, end):
            return None
        found: list[tuple[int, int, tuple[int, int] | None]] = []
        at = start
        while at < end:
            step = _STATEMENT.match(self._text, at, end)
            if step is None:
                return None
            first, last = step.span("body")
            if step["plain"] is None:
                body = None
            else:
                while self._text[last - 1].isspace():
                    last -= 1
                body = first, last
            found.append((at, step.end(), body))
            at = step.end()
        return found if len(found) > 1 else None

    def _marked(self, statements: list[Statement]) -> list[Statement]:
        if not self._is_translated:
            return statements
        return [msgspec.structs.replace(each, translated=True) for each in statements]
