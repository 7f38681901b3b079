"""Positions of sources: for each part of an external system, how far it is durable here."""

from collections.abc import Mapping


def covers(position: Mapping[str, int], furthest: Mapping[str, int]) -> bool:
    """Whether all before `furthest` is before `position` too."""
    return all(position.get(part, offset - 1) >= offset for part, offset in furthest.items())


def follows(
    position: Mapping[str, int], before: Mapping[str, int], after: Mapping[str, int]
) -> bool:
    """Whether a batch from `before` to `after` begins where the position is."""
    return all(position.get(part) == before.get(part) for part in after)
