"""Edit full names of relations, `database.schema.item`, in the text of a definition.

A definition is kept with full names. When a named object is renamed, the text is edited where the
three words stand as a name, and where a string constant names the relation, as in nextval('...')
and '...'::regclass. All other constants are data.
"""

from collections.abc import Mapping, Sequence

from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.parse.lexer import QUOTED, STRING, WORD, Token, tokenize
from foreshore.sql.rewrite.text_edits import apply_edits

FullName = tuple[str, str, str]

_TAKING_NAMES = ("nextval", "currval", "setval")


def dotted(name: tuple[str, ...]) -> str:
    """Return a qualified name as SQL text; names of system objects have no database."""
    return ".".join(map(quote_identifier, filter(None, name)))


def renamed(text: str, names: Mapping[FullName, FullName]) -> str:
    """Return `text` with full names replaced simultaneously, so that names can be swapped."""
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
    """Return whether the constant at `place` names a relation, judging by the tokens around it."""
    before = [each.value for each in tokens[max(place - 2, 0) : place]]
    after = [each.value for each in tokens[place + 1 : place + 3]]
    return (
        after in (["::", "regclass"], ["as", "regclass"])
        or before[-1:] == ["regclass"]
        or (before[-1:] == ["("] and before[0] in _TAKING_NAMES)
    )


def _begins_name(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a name of three words begins at `place`."""
    found = tokens[place : place + 5]
    return (
        len(found) == 5
        and all(each.kind in (WORD, QUOTED) for each in found[::2])
        and all(each.value == "." for each in found[1::2])
        and not (place and tokens[place - 1].value == ".")
    )
