"""Names of objects, as PostgreSQL reads them."""

MAX_NAME_BYTES = 63


def fold(word: str) -> str:
    """Return an unquoted name as PostgreSQL reads it: ASCII letters folded, cut to 63 bytes."""
    if not word.isascii():
        return cut("".join(c.lower() if c.isascii() else c for c in word))
    return word.lower()[:MAX_NAME_BYTES]


def cut(name: str) -> str:
    """Return the whole characters within the first 63 bytes of a name, as PostgreSQL does."""
    if len(name) <= MAX_NAME_BYTES // 4:
        return name
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
