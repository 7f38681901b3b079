"""Hide passwords and secrets in the texts of statements before they are shown.

    ALTER ROLE reader PASSWORD 'abc'    becomes    ALTER ROLE reader PASSWORD '...'

The text need not be valid: a constant that is not closed is hidden to the end. Of a text in which
a secret gets a value, which may be any expression, all from the next constant on is hidden, and so
is what follows the CHECK of a webhook. What stands before @ in a URL is hidden, and the value of
what is called like a secret, as in password=abc. A text that was not understood shows no constant,
as the secret may stand anywhere in it, nor does a statement that has failed to make a role or a
connection. A message of an error has no constant of its statement that is not shown, however the
statement writes it; of one longer than MOST_SEARCHED it shows nothing in quotes.
"""

import re
from collections.abc import Iterable

from foreshore.connection_spec import RULES
from foreshore.constant_values import STRING, value_of, values_of

HIDDEN = "'...'"
MOST_SHOWN = 1024  # characters, as by default of track_activity_query_size
MOST_SEARCHED = 1 << 16  # characters of a statement; it takes milliseconds

# The quantifiers are possessive: a text of a client must not make the search try again and again.
_BETWEEN = r"(?:\s|--[^\n]*+(?:\n|\Z)|(?>/\*.*?\*/))*+"
# The options of connections, among them `password`, that have to be secrets.
_HIDDEN_OPTIONS = sorted(
    {name for rules in RULES.values() for name, rule in rules.items() if rule.secret == "must"}
)
_WORDS = "|".join(_BETWEEN.join(name.split()) for name in _HIDDEN_OPTIONS)
_PASSWORD = re.compile(
    rf"(?P<word>(?<![.'])\b(?:{_WORDS})\b{_BETWEEN}=?+{_BETWEEN}){STRING}(?:\s*+'(?:[^']++|'')*+(?:'|\Z))*+",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# Strings and numbers; what else has digits or quotes is `kept`, but for comments.
_LITERAL = re.compile(
    rf"""{STRING}
    |(?P<comment>--[^\n]*+|/\*.*?(?:\*/|\Z))
    |(?P<kept>"(?:[^"]++|"")*+"?+|[^\W\d][\w$]*+|\$\d++)
    |(?:\d[\d_]*+\.?+\d*+|\.\d++)(?:[eE][+-]?\d++)?+""",
    re.DOTALL | re.VERBOSE,
)
_SECRET = re.compile(r"SCRAM-SHA-256\$\d++:[\w+/=]++\$[\w+/=]++:[\w+/=]++|\bmd5[0-9a-f]{32}\b")
_OF_SECRET = re.compile(rf"\b(?:create|alter){_BETWEEN}\bsecret\b", re.IGNORECASE | re.DOTALL)
_OF_WEBHOOK = re.compile(r"\bwebhook\b", re.IGNORECASE)
_CHECK = re.compile(r"\bcheck\b", re.IGNORECASE)
_OF_ROLE = re.compile(
    rf"\b(?:create|alter){_BETWEEN}\b(?:role|user|group)\b", re.IGNORECASE | re.DOTALL
)
_BARE_PASSWORD = re.compile(
    rf"""(?P<word>\bpassword\b{_BETWEEN})(?!(?:null\b|'|\$|[enbu]&?'))("[^"]*+"?+|[^\s'";,()]++)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_NAMES = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|signature|credential"
    r"|(?:api|access|private)[_-]?key)"
)
# The value of what is called like a secret: in SQL, in JSON, in a URL or a connection string.
_NAMED = re.compile(
    rf"""(?P<word>{_NAMES}[\w.-]*+
        (?:"?+{_BETWEEN}(?:=|:(?!:)|\bto\b){_BETWEEN}|'{_BETWEEN},{_BETWEEN}))
        (?:{STRING}|"(?:[^"\\]++|\\.)*+(?:"|\Z))""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# The same in the value of a constant or in a message, where no expression of SQL stands.
_IN_VALUE = re.compile(
    rf"""(?P<word>{_NAMES}[\w.-]*+\s*+=\s*+)
        (?:'(?:[^'\\]++|\\.)*+(?:'|\Z)|"(?:[^"\\]++|\\.)*+(?:"|\Z)|[^\s'"]\S*+)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_URL = re.compile(r"\s*+\w[\w+.-]*+://")
_PAIR = re.compile(rf"""(?P<word>{_NAMES}[\w.-]*+=)[^\s'"&;,()$<]++""", re.IGNORECASE | re.VERBOSE)
_USER_INFO = re.compile(r"""(?P<word>://)(?:[^\s'"/?\#@]*+@|[^\s'"/:@]*+:[^\s'"]*@)""", re.VERBOSE)
_CUT_USER_INFO = re.compile(r"""(?P<word>://)[^\s'"/:@]*+:[^\s'"]*+\Z""", re.VERBOSE)
_UNPARSED = ("42601", "0A000")  # SQLSTATEs of what is not understood
_GUARDED = re.compile(
    rf"\b(?:create|alter){_BETWEEN}\b(?:connection|role|user|group|subscription)\b",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r'"[^"]*+(?:"|\Z)')
_LEAST = 3  # characters of a constant that is looked for in messages
_VALUE = re.compile(r"(?:\b[a-z]&?)?'|\$\w*+\$", re.IGNORECASE)


def without_literals(text: str) -> str:
    """Return the text of statements with `<REDACTED>` for strings and numbers, no comments."""

    def shown(found: re.Match[str]) -> str:
        return found["kept"] or (" " if found["comment"] else "<REDACTED>")

    return _LITERAL.sub(shown, text)


def redacted(text: str, sqlstate: str | None = None) -> str:
    """Return the beginning of the text of statements, without passwords and their verifiers.

    `sqlstate` is that of the error, if they have failed.
    """
    is_cut = len(text) >= MOST_SHOWN
    text = text[:MOST_SHOWN]
    if sqlstate in _UNPARSED or (sqlstate is not None and _GUARDED.search(text)):
        text = without_literals(text)
    text = _LITERAL.sub(_without_pairs, text)
    if "://" in text:
        text = _USER_INFO.sub(_without_value, text)
        if is_cut:
            text = _CUT_USER_INFO.sub(_without_value, text)
    if _OF_ROLE.search(text):
        text = _BARE_PASSWORD.sub(lambda found: found["word"] + HIDDEN, text)
    text = _NAMED.sub(lambda found: found["word"] + HIDDEN, text)
    text = _PAIR.sub(_without_value, text)
    text = _PASSWORD.sub(lambda found: found["word"] + HIDDEN, text)
    if (found := _OF_SECRET.search(text)) and (value := _VALUE.search(text, found.end())):
        text = text[: value.start()] + HIDDEN
    if (
        (found := _OF_WEBHOOK.search(text))
        and (found := _CHECK.search(text, found.end()))
        and (value := _VALUE.search(text, found.end()))
    ):
        text = text[: value.start()] + HIDDEN
    return _SECRET.sub("...", text)


def redacted_message(message: str, text: str, sqlstate: str | None = None) -> str:
    """Return the message of a statement's error without what is hidden in the statement's text."""
    is_cut = len(message) >= MOST_SHOWN
    message = message[:MOST_SHOWN]
    if len(text) > MOST_SEARCHED:
        message = _QUOTED.sub('"..."', message)
    else:
        for constant in _hidden(text, redacted(text, sqlstate)):
            message = message.replace(constant, "...")
            if is_cut and (place := _begin_at_end(message, constant)) is not None:
                message = message[:place] + "..."
    return redacted(_IN_VALUE.sub(_without_value, message))


def _hidden(text: str, shown: str) -> Iterable[str]:
    """Return the constants that are not in what is shown of a text, long ones first."""
    found = [each for each in _LITERAL.finditer(text) if not (each["kept"] or each["comment"])]
    values = set(values_of(text, found))
    hidden = [each for each in values if len(each) >= _LEAST and each not in shown]
    return sorted(hidden, key=len, reverse=True)


def _begin_at_end(message: str, constant: str) -> int | None:
    """Return where a message ends with the beginning of a constant; None: it does not."""
    place = message.find(constant[:_LEAST])
    while place >= 0:
        if constant.startswith(message[place:]):
            return place
        place = message.find(constant[:_LEAST], place + 1)
    return None


def _without_pairs(found: re.Match[str]) -> str:
    """Return a constant without the values of what is called like a secret in it."""
    if found["kept"] or found["comment"]:
        return found[0]
    value = value_of(found.string, found)
    if _URL.match(value):  # in which other signs end a value
        return found[0]
    shown = _IN_VALUE.sub(_without_value, value)
    return found[0] if shown == value else "'" + shown.replace("'", "''") + "'"


def _without_value(found: re.Match[str]) -> str:
    return f"{found['word']}...{'@' if found[0].endswith('@') else ''}"
