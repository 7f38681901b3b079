"""Full names of relations in the text of a definition: `database.schema.item`, three words.

A definition is kept with the full names of what it mentions. When one of these is given another
name the text is edited: where the words stand as a name, and where a string constant names the
relation, as nextval('...') and '...'::regclass do. All other constants are data.
"""

from collections.abc import Mapping, Sequence

from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.parse.lexer import QUOTED, STRING, WORD, Token, tokenize
from foreshore.sql.rewrite.text_edits import apply_edits

FullName = tuple[str, str, str]

_TAKING_NAMES = ("nextval", "currval", "setval")


def dotted(name: FullName) -> str:
    """Return a full name as SQL has it; what is the system's has no database."""
    return ".".join(map(quote_identifier, filter(None, name)))


def renamed(text: str, names: Mapping[FullName, FullName]) -> str:
    """Return `text` with other full names, all at once: one may get the name that another had."""
    tokens, _ = tokenize(text)
    constants = {dotted(then): quote_string(dotted(now)) for then, now in names.items()}
    edits = []
    for place, token in enumerate(tokens):
        if token.kind == STRING and token.value in constants and is_regclass(tokens, place):
            edits.append((token.start, token.end, constants[token.value]))
        elif _begins_name(tokens, place):
            first, _, second, _, third = tokens[place : place + 5]
            now = names.get((first.value, second.value, third.value))
            if now is not None:
                edits.append((first.start, third.end, dotted(now)))
    return apply_edits(text, edits)


def is_regclass(tokens: Sequence[Token], place: int) -> bool:
    """Whether the constant at `place` is taken for the name of a relation, by what is around it."""
    before = [each.value for each in tokens[max(place - 2, 0) : place]]
    after = [each.value for each in tokens[place + 1 : place + 3]]
    return (
        after in (["::", "regclass"], ["as", "regclass"])
        or before[-1:] == ["regclass"]
        or (before[-1:] == ["("] and before[0] in _TAKING_NAMES)
    )


def _begins_name(tokens: Sequence[Token], place: int) -> bool:
    """Whether three words with dots between them begin at `place`, and none before."""
    found = tokens[place : place + 5]
    return (
        len(found) == 5
        and all(each.kind in (WORD, QUOTED) for each in found[::2])
        and all(each.value == "." for each in found[1::2])
        and not (place and tokens[place - 1].value == ".")
    )
