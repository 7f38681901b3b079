"""Digits in texts of values are 0 to 9, as in PostgreSQL."""


def is_digits(text: str) -> bool:
    """Return whether `text` has only digits, and at least one.

    Python's `isdigit` is true of superscripts, which `int` refuses, and of the digits of other
    scripts, which it takes.
    """
    return text.isascii() and text.isdigit()
