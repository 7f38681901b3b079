"""Long lists of rows or constants, taken out of a text before it is tokenized.

    VALUES (1, 'a'), (2, 'b'), ...      x IN (1, 2, ...)      (x, y) IN ((1, 2), (3, 4), ...)

Tokens and syntax nodes for a constant take 30 us. So one row of each form (`row_forms.py`), or the
first value of a list, is left in the text, and blanks take the place of the others: offsets stay
the same. `take_out` returns what it took out by the offset of the first row's parenthesis, or of
the first value, and the node that has it gets the rest. The caller parses the text as it is if a
list finds no node, or if anything fails.
"""

import re

from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql.ast.constant_list import CONSTANT, ConstantList
from foreshore.sql.ast.form_rows import FormRows
from foreshore.sql.parse.lexer import QUOTED_TEXT
from foreshore.sql.parse.row_forms import BLANK, read_rows

FEWEST = 32  # rows from which on a list is taken out
SHORTEST = 256  # characters of a text that may have such a list

Lists = dict[int, ConstantList | FormRows]

_FLAGS = re.IGNORECASE | re.ASCII

_LIST = re.compile(
    rf"(?P<quoted>{QUOTED_TEXT})"
    rf"|\b(?:values|(?P<in>in)\s*+\(){BLANK}(?=(?P<rows>\())"
    rf"|\bin\s*+\(\s*+(?P<value>{CONSTANT})"
    r"""|(?:(?!e'|values\b|in\b)\w++|[^\w'"$/-]){1,1000}+""",  # in steps that let others run
    _FLAGS | re.DOTALL,
)
_MORE = re.compile(r"\s*+,", _FLAGS)
_REST = re.compile(rf"(?:\s*+,\s*+{CONSTANT})++(?=\s*+\))", _FLAGS)


def take_out(text: str, start: int, end: int) -> tuple[str, Lists]:
    """Return a range of `text` with blanks for the rest of each long list, and these rests."""
    lists: Lists = {}
    if end - start < SHORTEST:
        return text[start:end], lists
    pieces, done = [], start
    at = start
    while (match := _LIST.search(text, at, end)) is not None:
        if REQUESTS:
            safepoint()
        at = match.end()
        taken: ConstantList | FormRows | None = None
        if match["rows"] is not None:
            taken = read_rows(text, at, end, FEWEST, is_in_list=match["in"] is not None)
        elif match["value"] is not None:
            taken = _rest_of_values(text, at, end)
        if taken is None:
            continue
        lists[at if match["rows"] is not None else match.start("value")] = taken
        for gap in taken.gaps:
            pieces += [text[done : gap[0]], " " * (gap[1] - gap[0])]
            at = done = gap[1]
    return "".join([*pieces, text[done:end]]), lists


def _rest_of_values(text: str, at: int, end: int) -> ConstantList | None:
    """Return the rest of a list of values after the first; None if it is not long."""
    rest = _REST.match(text, at, end)
    if rest is None or _MORE.match(text, rest.end(), end):
        return None
    values = ConstantList(text, rest.start(), rest.end())
    return values if len(values) >= FEWEST else None
