"""What the engine has no operator for yet."""


class Unsupported(Exception):
    """There is no operator for a part of a plan; the message names it."""
