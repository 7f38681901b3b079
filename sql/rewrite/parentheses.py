"""Take the parentheses away that enclose all of an expression's text."""

from foreshore.sql.parse.lexer import PUNCTUATION, tokenize


def without_enclosing(text: str) -> str:
    """Return an expression without parentheses around all of it, as around `((a > 0))`.

    pg_dump encloses the condition of a CHECK, and so would each restore.
    """
    text = text.strip()
    while text.startswith("(") and _closes_at(text) == len(text):
        text = text[1:-1].strip()
    return text


def _closes_at(text: str) -> int:
    """Return the end of the parenthesis that matches the first one, 0 if there is none."""
    depth = 0
    for token in tokenize(text)[0]:
        if token.kind == PUNCTUATION and token.value in "()":
            depth += 1 if token.value == "(" else -1
            if depth == 0:
                return token.end
    return 0
