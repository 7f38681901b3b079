"""Statements that need more of a client than `sql` and `execute`: they would wait or drop rows.

COPY FROM STDIN waits for rows of the client, COPY TO STDOUT sends rows that `execute` has no place
for, and the rows of a SUBSCRIBE without UP TO have no end. Each is refused, with the method that
does it, wherever it stands among several statements.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from foreshore.embedded.literals import words_and_signs
from foreshore.errors import FeatureNotSupported

_MAY_BE = re.compile(r"copy|subscribe", re.I)
_STREAMS = frozenset(("stdin", "stdout"))


def check_client_statements(text: str) -> None:
    """Raise FeatureNotSupported if one of the statements needs more than its tag or rows."""
    if _MAY_BE.search(text) is None:
        return
    for words in _statements(text):
        match words[:1]:
            case ["subscribe"] if ("up", "to") not in _pairs(words):
                raise FeatureNotSupported(
                    "a SUBSCRIBE without UP TO has no end",
                    hint='Iterate over subscribe("a table, view or query") or stream(statement).',
                )
            case ["copy"]:
                _check_copy(words)


def _check_copy(words: list[str]) -> None:
    for first, second in _pairs(words):
        if second in _STREAMS and first == "from":
            raise FeatureNotSupported(
                "COPY FROM STDIN needs a client that sends rows",
                hint='Use register("table", data, if_exists="append"), or read_csv, with files.',
            )
        if second in _STREAMS and first == "to":
            raise FeatureNotSupported(
                "COPY TO STDOUT needs a client that takes rows",
                hint="Use sql(query), or stream(query) for rows as they arrive.",
            )


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(pairwise(words))


def _statements(text: str) -> Iterator[list[str]]:
    """Yield for each statement the words that are in no parentheses, in lower case."""
    words: list[str] = []
    depth = 0
    for token in words_and_signs(text):
        match token:
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case ";":
                yield words
                words, depth = [], 0
            case _ if depth == 0:
                words.append(token.lower())
    yield words
