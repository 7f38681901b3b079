"""Plans for which the engine has no operator."""


class Unsupported(Exception):
    """There is no operator for a part of a plan; the message names it."""
