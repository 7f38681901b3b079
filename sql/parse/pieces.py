"""Pieces of a text: whole statements, of some thousand characters if they are not longer.

A long text is parsed piece by piece, so that its tokens are never all in memory. This finds where a
statement ends without tokenizing, in steps that let other threads run.
"""

import re
from collections.abc import Iterator

from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql.parse.lexer import QUOTED_TEXT

PIECE = 16_384  # characters: some ten milliseconds of parsing

_BLANK = r"(?:\s++|--[^\r\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+"
# A semicolon before END may be in the body of a function. What is plain is read in bounded steps.
_STEP = re.compile(
    rf"(?P<end>;)(?!{_BLANK}end\b)|(?P<comment_start>/\*)|(?P<quoted>{QUOTED_TEXT})"
    r"""|(?:(?!e')\w++|[^\w;'"$/-]){1,1000}+|.""",
    re.DOTALL | re.IGNORECASE,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


def pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text's pieces; together they are the text."""
    begun = 0
    if len(text) > PIECE:
        at = 0
        while (step := _STEP.match(text, at)) is not None:
            if REQUESTS:
                safepoint()
            at = step.end()
            if step["comment_start"] is not None:
                at = _end_of_comment(text, step.start())
            elif step["end"] is not None and at - begun >= PIECE:
                yield begun, at
                begun = at
    if begun < len(text) or not text:
        yield begun, len(text)


def _end_of_comment(text: str, start: int) -> int:
    """Return where a comment ends, in which others may be nested."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)
