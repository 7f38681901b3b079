"""Hide passwords in the texts of statements before they are shown or logged.

    ALTER ROLE reader PASSWORD 'abc'    becomes    ALTER ROLE reader PASSWORD '...'

The text need not be valid: a constant that is not closed is hidden to the end.
"""

import re

HIDDEN = "'...'"

_BETWEEN = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
_STRING = r"""(?:
    [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)
  | (?:[uU]&|[nNbB])?'(?:[^']|'')*(?:'|\Z)
  | \$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)
)"""
_PASSWORD = re.compile(
    rf"(?P<word>\bpassword\b{_BETWEEN}=?{_BETWEEN}){_STRING}(?:\s*\n\s*'(?:[^']|'')*(?:'|\Z))*",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_SECRET = re.compile(r"SCRAM-SHA-256\$\d+:[\w+/=]+\$[\w+/=]+:[\w+/=]+|\bmd5[0-9a-f]{32}\b")


def redacted(text: str) -> str:
    """Return the text of statements without passwords and their verifiers."""
    text = _PASSWORD.sub(lambda found: found["word"] + HIDDEN, text)
    return _SECRET.sub("...", text)
