"""The statements of a text that are run one after the other.

As in PostgreSQL, a syntax error anywhere in the text means that nothing of it runs. So all of the
text is parsed first; but the trees of the first statements only are kept. Later pieces are parsed
again when it is their turn: the trees of a text take 200 times its size.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from foreshore.sql.parse.dialects import read_in
from foreshore.sql.parse.parse import Statement, parse_piece
from foreshore.sql.parse.pieces import pieces

KEPT = 1000  # statements, and those of the piece that reaches so many


class Script:
    """The statements of `text`; raises what parsing and translating it raise."""

    def __init__(self, dialect: str, text: str) -> None:
        with read_in(dialect, text) as self._text:
            self._is_translated = dialect != "postgres"
            self.count = 0
            self.parsed: deque[Statement] = deque()  # those that come next
            self._later: deque[tuple[int, int]] = deque()
            for start, end in pieces(self._text):
                found = parse_piece(self._text, start, end)
                self.count += len(found)
                if self.count - len(found) < KEPT:
                    self.parsed += self._marked(found)
                elif found:
                    self._later.append((start, end))

    @classmethod
    def of(cls, statements: Sequence[Statement]) -> "Script":
        """Return the script of a text whose statements are known."""
        script = cls.__new__(cls)
        script.count, script.parsed = len(statements), deque(statements)
        return script

    def go_on(self) -> None:
        """Parse the next piece of the text if all that was parsed has been taken."""
        if not self.parsed:
            self.parsed += self._marked(parse_piece(self._text, *self._later.popleft()))

    def _marked(self, statements: list[Statement]) -> Iterator[Statement]:
        if not self._is_translated:
            return iter(statements)
        return (msgspec.structs.replace(each, translated=True) for each in statements)
