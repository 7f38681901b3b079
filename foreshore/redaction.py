"""Hide passwords and secrets in the texts of statements before they are shown.

    ALTER ROLE reader PASSWORD 'abc'    becomes    ALTER ROLE reader PASSWORD '...'

The text need not be valid: a constant that is not closed is hidden to the end. Of a text in which
a secret gets a value, which may be any expression, all from the next constant on is hidden, and so
is what follows the CHECK of a webhook. What stands before @ in a URL is hidden, and the value of
what is called like a secret, as in password=abc. A constant may hold statements itself, as that of
DO does: they are redacted alike. A text that was not understood shows no constant, as the secret
may stand anywhere in it, nor does a statement that has failed to make a role or a connection. A
message of an error has no constant of its statement that is not shown, however the statement writes
it; of one longer than MOST_SEARCHED it shows nothing in quotes.

The event loop does this for many statements. So nearly all texts are only searched for the words
of secrets, and the work for others grows with their length and nothing else.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from foreshore.connection_spec import RULES
from foreshore.constant_values import STRING, value_of, values_of

HIDDEN = "'...'"
MOST_SHOWN = 1024  # characters, as by default of track_activity_query_size
MOST_SEARCHED = 1 << 13  # characters of a statement whose constants are compared with a message
_MOST_READ = 1 << 16  # characters of a statement that is searched for the words of secrets
_DEPTH = 3  # of statements within constants, beyond which a constant is hidden

# In lower case; a text without any of them has no secret that could be told from other values.
_SIGNS = (
    *("passw", "passphrase", "pwd", "secret", "token", "signature", "credential", "authorization"),
    *("apikey", "api_key", "api-key", "accesskey", "access_key", "access-key"),
    *("privatekey", "private_key", "private-key", "ssl", "webhook", "://", "scram-sha-256$", "md5"),
)
_ESCAPED = re.compile(r"(?<!\w)(?:e|u&)'")  # a constant in which a sign may be written by codes


def _in_any_case(words: Sequence[str], after_first: str = "") -> str:
    """Return a pattern of one of some words, for re.IGNORECASE.

    It matches the first letter of one with the rest of another, too, which does no harm: a search
    goes ten times as fast if a set of signs, in which case counts, is what each match begins with.
    """
    first = "".join(sorted({each[0] for each in words}))
    rest = "|".join(dict.fromkeys(each[1:] for each in words))
    return f"(?-i:[{first}{first.upper()}]){after_first}(?:{rest})"


# The quantifiers are possessive: a text of a client must not make the search try again and again.
_BETWEEN = r"(?:\s|--[^\n]*+(?:\n|\Z)|(?>/\*.*?\*/))*+"
# The options of connections, among them `password`, that have to be secrets.
_HIDDEN_OPTIONS = sorted(
    {name for rules in RULES.values() for name, rule in rules.items() if rule.secret == "must"}
)
_WORDS = _in_any_case([_BETWEEN.join(name.split()) for name in _HIDDEN_OPTIONS], r"(?<![.'\w].)")
_PASSWORD = re.compile(
    rf"(?P<word>{_WORDS}\b{_BETWEEN}=?+{_BETWEEN}){STRING}(?:\s*+'(?:[^']++|'')*+(?:'|\Z))*+",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# A type with its modifiers, whose numbers are no values.
_TYPE = r"""(?<![\w$])(?i:numeric|decimal|dec|(?:national\s++)?+char(?:acter)?+(?:\s++varying)?+
    |varchar|bpchar|bit(?:\s++varying)?+|varbit|float|interval|time(?:stamp)?+(?:tz)?+)\s*+
    \(\s*+-?+\d{1,10}+\s*+(?:,\s*+-?+\d{1,10}+\s*+)?+\)"""
# Strings, numbers and comments; all between two of them is `kept`.
_LITERAL = re.compile(
    rf"""{STRING}
    |(?P<comment>--[^\n]*+|/\*.*?(?:\*/|\Z))
    |(?:\d[\d_]*+\.?+\d*+|\.\d++)(?:[eE][+-]?\d++)?+
    |(?P<kept>(?:
        [^\w"'$/.-]++
      | {_TYPE}
      | (?!(?:[eEnNbBxX]|[uU]&)')[^\W\d][\w$]*+
      | "(?:[^"]++|"")*+"?+
      | \$(?!\w*+\$)\d*+ | \.(?!\d) | -(?!-) | /(?!\*)
    )++)""",
    re.DOTALL | re.VERBOSE,
)
_SECRET = re.compile(r"SCRAM-SHA-256\$\d++:[\w+/=]++\$[\w+/=]++:[\w+/=]++|\bmd5[0-9a-f]{32}\b")
_MAKE = _in_any_case(["create", "alter"], r"(?<!\w\w)")
_OF_SECRET = re.compile(rf"{_MAKE}{_BETWEEN}\bsecret\b", re.IGNORECASE | re.DOTALL)
_OF_WEBHOOK = re.compile(r"\bwebhook\b", re.IGNORECASE)
_CHECK = re.compile(r"\bcheck\b", re.IGNORECASE)
_OF_ROLE = re.compile(rf"{_MAKE}{_BETWEEN}\b(?:role|user|group)\b", re.IGNORECASE | re.DOTALL)
_BARE_PASSWORD = re.compile(
    rf"""(?P<word>\bpassword\b{_BETWEEN})(?!(?:null\b|'|\$|[enbu]&?'))("[^"]*+"?+|[^\s'";,()]++)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_NAMES = _in_any_case(
    [
        *("password", "passwd", "passphrase", "pwd", "secret", "token", "signature", "credential"),
        *("authorization", "api[_-]?key", "access[_-]?key", "private[_-]?key"),
    ]
)
_GETS = r"(?::?+=>?+|:(?!:))"  # between a name and its value
# The value of what is called like a secret: in SQL, in JSON, in a URL or a connection string.
_NAMED = re.compile(
    rf"""(?P<word>{_NAMES}[\w.-]*+
        (?:"?+{_BETWEEN}(?:{_GETS}|\bto\b){_BETWEEN}|'{_BETWEEN},{_BETWEEN}))
        (?:{STRING}|"(?:[^"\\]++|\\.)*+(?:"|\Z))""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# The same in the value of a constant or in a message. Quotes may be doubled there, and again.
_IN_VALUE = re.compile(
    rf"""(?P<word>{_NAMES}[\w.-]*+["']?+\s*+{_GETS}\s*+(?:(?:basic|bearer|digest)\s++)?+)
        (?:(?P<quotes>'++)(?:[^'\\]++|\\.|(?P=quotes){{2}}|(?!(?P=quotes))')*+(?:(?P=quotes)|\Z)
        |"(?:[^"\\]++|\\.)*+(?:"|\Z)|[^\s'"]\S*+)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_URL = re.compile(r"\s*+\w[\w+.-]*+://\S*+\s*+\Z")
_PAIR = re.compile(rf"""(?P<word>{_NAMES}[\w.-]*+=)[^\s'"&;,()$<]++""", re.IGNORECASE | re.VERBOSE)
_USER_INFO = re.compile(r"""(?P<word>://)(?:[^\s'"/?\#@]*+@|[^\s'"/:@]*+:[^\s'"]*@)""", re.VERBOSE)
_CUT_USER_INFO = re.compile(r"""(?P<word>://)[^\s'"/:@]*+:[^\s'"]*+\Z""", re.VERBOSE)
_UNPARSED = ("42601", "0A000")  # SQLSTATEs of what is not understood
_GUARDED = re.compile(
    rf"{_MAKE}{_BETWEEN}\b(?:connection|role|user|group|subscription)\b",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r'"[^"]*+(?:"|\Z)')
_PLACE = re.compile(r"'\0(\d+)\0'")
_LEAST = 3  # characters of a constant that is looked for in messages
_VALUE = re.compile(r"(?:\b[a-z]&?)?'|\$\w*+\$", re.IGNORECASE)


def without_literals(text: str, *, shown_as: str = "<REDACTED>") -> str:
    """Return the text of statements with `shown_as` for strings and numbers, no comments."""

    def shown(found: re.Match[str]) -> str:
        return found["kept"] or (" " if found["comment"] else shown_as)

    return _LITERAL.sub(shown, text)


def redacted(text: str, sqlstate: str | None = None) -> str:
    """Return the beginning of the text of statements, without passwords and their verifiers.

    `sqlstate` is that of the error, if they have failed.
    """
    is_cut = len(text) >= MOST_SHOWN
    text = text[:MOST_SHOWN]
    if _shows_no_constant(text, sqlstate):
        text = without_literals(text)
    return _without_secrets(text, is_cut, _DEPTH) if _may_have_secrets(text) else text


def redacted_message(message: str, text: str, sqlstate: str | None = None) -> str:
    """Return the message of a statement's error without what is hidden in the statement's text."""
    is_cut = len(message) >= MOST_SHOWN
    message = message[:MOST_SHOWN]
    if len(text) > _MOST_READ:
        message = _QUOTED.sub('"..."', message)
    elif _shows_no_constant(text[:MOST_SHOWN], sqlstate) or _may_have_secrets(text):
        if len(text) > MOST_SEARCHED:
            message = _QUOTED.sub('"..."', message)
        else:
            message = _without_constants(message, is_cut, text, redacted(text, sqlstate))
    if _may_have_secrets(message):
        message = redacted(_IN_VALUE.sub(_without_value, message))
    return message


def _may_have_secrets(text: str) -> bool:
    """Return whether a text has a sign of a secret, or could have one that is written by codes."""
    lower = text.lower()
    return any(sign in lower for sign in _SIGNS) or (
        ("\\" in text or "uescape" in lower) and _ESCAPED.search(lower) is not None
    )


def _shows_no_constant(text: str, sqlstate: str | None) -> bool:
    """Return whether all constants are hidden in a text whose error has this SQLSTATE."""
    return sqlstate in _UNPARSED or (sqlstate is not None and _GUARDED.search(text) is not None)


def _without_secrets(text: str, is_cut: bool, depth: int) -> str:
    """Return a text of statements without secrets, also in statements that constants hold."""
    constants: list[str] = []  # those that are shown in another way, and not searched again

    def shown(found: re.Match[str]) -> str:
        if found["kept"] or found["comment"]:
            return found[0]
        constant = _constant(found, is_cut and found.end() == len(found.string), depth)
        if constant is None:
            return found[0]
        constants.append(constant)
        return f"'\0{len(constants) - 1}\0'"

    text = _LITERAL.sub(shown, text.replace("\0", " "))
    lower = text.lower()
    if "://" in text:
        text = _USER_INFO.sub(_without_value, text)
        if is_cut:
            text = _CUT_USER_INFO.sub(_without_value, text)
    if "password" in lower and _OF_ROLE.search(text):
        text = _BARE_PASSWORD.sub(lambda found: found["word"] + HIDDEN, text)
    text = _NAMED.sub(lambda found: found["word"] + HIDDEN, text)
    text = _PAIR.sub(_without_value, text)
    text = _PASSWORD.sub(lambda found: found["word"] + HIDDEN, text)
    if (
        "secret" in lower
        and (found := _OF_SECRET.search(text))
        and (value := _VALUE.search(text, found.end()))
    ):
        text = text[: value.start()] + HIDDEN
    if (
        "webhook" in lower
        and (found := _OF_WEBHOOK.search(text))
        and (found := _CHECK.search(text, found.end()))
        and (value := _VALUE.search(text, found.end()))
    ):
        text = text[: value.start()] + HIDDEN
    text = _PLACE.sub(lambda place: constants[int(place[1])], text)
    return _SECRET.sub("...", text) if "scram" in lower or "md5" in lower else text


def _constant(found: re.Match[str], is_cut: bool, depth: int) -> str | None:
    """Return a constant without the secrets in its value; None if it has none."""
    value = value_of(found.string, found)
    if not _may_have_secrets(value):
        return None
    if not depth:
        return HIDDEN
    shown = value if _URL.match(value) else _IN_VALUE.sub(_without_value, value)
    shown = _without_secrets(shown, is_cut, depth - 1)
    return None if shown == value else "'" + shown.replace("'", "''") + "'"


def _without_value(found: re.Match[str]) -> str:
    return f"{found['word']}...{'@' if found[0].endswith('@') else ''}"


def _without_constants(message: str, is_cut: bool, text: str, shown: str) -> str:
    """Return a message without the constants of a text that are not in what is shown of it."""
    rests = sorted(message[start:] for start in range(len(message)))
    found, end = [], len(message)
    for each in _constants(text):
        place = bisect_left(rests, each)
        if place < len(rests) and rests[place].startswith(each) and each not in shown:
            found.append(each)
        if is_cut and (start := _begin_at_end(message, each)) < end and each not in shown:
            end = start
    message = message if end == len(message) else message[:end] + "..."
    for each in sorted(found, key=len, reverse=True):
        message = message.replace(each, "...")
    return message


def _constants(text: str) -> Iterable[str]:
    """Return the different values of a text's constants that are long enough to be told apart."""
    found = [each for each in _LITERAL.finditer(text) if not (each["kept"] or each["comment"])]
    return {each for each in values_of(text, found) if len(each) >= _LEAST}


def _begin_at_end(message: str, constant: str) -> int:
    """Return where a message ends with the beginning of a constant; its length: it does not."""
    begin = constant[:_LEAST]
    place = message.find(begin, max(0, len(message) - len(constant)))
    while place >= 0:
        if constant.startswith(message[place:]):
            return place
        place = message.find(begin, place + 1)
    return len(message)
