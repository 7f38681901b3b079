"""Long lists of constants, taken out of a text before it is tokenized.

    VALUES (1, 'a'), (2, 'b'), ...      x IN (1, 2, ...)      (x, y) IN ((1, 2), (3, 4), ...)

Tokens and syntax nodes for a constant take 30 us. So the first row, or value, of a list is left in
the text, and blanks take the place of the others: offsets stay the same. `take_out` returns the
others by the offset of the first row's first constant, and the node that has that constant gets
them. The caller parses the text as it is if a list finds no node, or if anything fails.
"""

import re
from functools import lru_cache

from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql.ast.constant_rows import CONSTANT, ConstantRows
from foreshore.sql.parse.lexer import QUOTED_TEXT

FEWEST = 32  # rows from which on a list is taken out
SHORTEST = 256  # characters of a text that may have such a list

Lists = dict[int, ConstantRows]

_FLAGS = re.IGNORECASE | re.ASCII

_LIST = re.compile(
    rf"(?P<quoted>{QUOTED_TEXT})"
    rf"|\b(?:values|in\s*+\()\s*+(?P<row>\(\s*+(?P<first>{CONSTANT})(?:\s*+,\s*+{CONSTANT})*+\s*+\))"
    rf"|\bin\s*+\(\s*+(?P<value>{CONSTANT})"
    r"""|(?:(?!e'|values\b|in\b)\w++|[^\w'"$/-]){1,1000}+""",  # in steps that let others run
    _FLAGS | re.DOTALL,
)
_ROW_PARTS = re.compile(CONSTANT, _FLAGS)
_MORE = re.compile(r"\s*+,", _FLAGS)


def take_out(text: str, start: int, end: int) -> tuple[str, Lists]:
    """Return a range of `text` with blanks for the rest of each long list, and these rests."""
    lists: Lists = {}
    if end - start < SHORTEST:
        return text[start:end], lists
    pieces, done = [], start
    for match in _LIST.finditer(text, start, end):
        if REQUESTS:
            safepoint()
        row = match.group("row")
        if row is None and match.group("value") is None:
            continue
        width = 0 if row is None else len(_ROW_PARTS.findall(row))
        rest = _rest_of_list(width).match(text, match.end(), end)
        if rest is None or _MORE.match(text, rest.end(), end):
            continue
        rows = ConstantRows(text, rest.start(), rest.end(), max(width, 1))
        if len(rows) < FEWEST:
            continue
        lists[match.start("first" if width else "value")] = rows
        pieces += [text[done : rest.start()], " " * (rest.end() - rest.start())]
        done = rest.end()
    return "".join([*pieces, text[done:end]]), lists


@lru_cache(256)
def _rest_of_list(width: int) -> re.Pattern[str]:
    """Return what matches further rows of `width` constants, or further values if that is 0."""
    row = rf"{CONSTANT}(?:\s*+,\s*+{CONSTANT}){{{max(width, 1) - 1}}}"
    if width:
        row = rf"\(\s*+{row}\s*+\)"
        return re.compile(rf"(?:\s*+,\s*+{row})++", _FLAGS)
    return re.compile(rf"(?:\s*+,\s*+{row})++(?=\s*+\))", _FLAGS)
