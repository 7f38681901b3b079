"""Hide passwords and secrets in the texts of statements before they are shown.

    ALTER ROLE reader PASSWORD 'abc'    becomes    ALTER ROLE reader PASSWORD '...'

The text need not be valid: a constant that is not closed is hidden to the end. Of a text in which
a secret gets a value, which may be any expression, all from the next constant on is hidden.
"""

import re

from foreshore.connection_spec import RULES

HIDDEN = "'...'"
MOST_SHOWN = 1024  # characters, as by default of track_activity_query_size

# The quantifiers are possessive: a text of a client must not make the search try again and again.
_BETWEEN = r"(?:\s|--[^\n]*+(?:\n|\Z)|(?>/\*.*?\*/))*+"
_STRING = r"""(?:
    [eE]'(?:[^'\\]++|\\.|'')*+(?:'|\Z)
  | (?:[uU]&|[nNbB])?'(?:[^']++|'')*+(?:'|\Z)
  | \$(?P<tag>\w*+)\$.*?(?:\$(?P=tag)\$|\Z)
)"""
# The options of connections, among them `password`, that have to be secrets.
_HIDDEN_OPTIONS = sorted(
    {name for rules in RULES.values() for name, rule in rules.items() if rule.secret == "must"}
)
_WORDS = "|".join(_BETWEEN.join(name.split()) for name in _HIDDEN_OPTIONS)
_PASSWORD = re.compile(
    rf"(?P<word>\b(?:{_WORDS})\b{_BETWEEN}=?+{_BETWEEN}){_STRING}(?:\s*+'(?:[^']++|'')*+(?:'|\Z))*+",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# Strings and numbers; what else has digits or quotes is `kept`, but for comments.
_LITERAL = re.compile(
    rf"""{_STRING}
    |(?P<comment>--[^\n]*+|/\*.*?(?:\*/|\Z))
    |(?P<kept>"(?:[^"]++|"")*+"?+|[^\W\d][\w$]*+|\$\d++)
    |(?:\d[\d_]*+\.?+\d*+|\.\d++)(?:[eE][+-]?\d++)?+""",
    re.DOTALL | re.VERBOSE,
)
_SECRET = re.compile(r"SCRAM-SHA-256\$\d++:[\w+/=]++\$[\w+/=]++:[\w+/=]++|\bmd5[0-9a-f]{32}\b")
_OF_SECRET = re.compile(rf"\b(?:create|alter){_BETWEEN}\bsecret\b", re.IGNORECASE | re.DOTALL)
_VALUE = re.compile(r"(?:\b[a-z]&?)?'|\$\w*+\$", re.IGNORECASE)


def without_literals(text: str) -> str:
    """Return the text of statements with `<REDACTED>` for strings and numbers, no comments."""

    def shown(found: re.Match[str]) -> str:
        return found["kept"] or (" " if found["comment"] else "<REDACTED>")

    return _LITERAL.sub(shown, text)


def redacted(text: str) -> str:
    """Return the beginning of the text of statements, without passwords and their verifiers."""
    text = text[:MOST_SHOWN]
    text = _PASSWORD.sub(lambda found: found["word"] + HIDDEN, text)
    if (found := _OF_SECRET.search(text)) and (value := _VALUE.search(text, found.end())):
        text = text[: value.start()] + HIDDEN
    return _SECRET.sub("...", text)
