"""By which engine dataflows are hydrated: HYDRATE of a cluster, a materialized view or an index."""

from typing import Literal

from foreshore.errors import InvalidParameterValue

HydrateMode = Literal["auto", "local", "spark"]
MODES: tuple[HydrateMode, ...] = ("auto", "local", "spark")


def checked_mode(text: str) -> HydrateMode:
    """Return the mode that a text names, regardless of case; raises InvalidParameterValue."""
    for mode in MODES:
        if mode == text.lower():
            return mode
    raise InvalidParameterValue(
        f'invalid value for HYDRATE: "{text}"', hint="Valid values are: auto, local, spark"
    )
