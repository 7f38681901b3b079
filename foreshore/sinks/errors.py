"""Errors of sinks."""

from foreshore.errors import ObjectNotInPrerequisiteState


class TargetLost(ObjectNotInPrerequisiteState):
    """A sink cannot go on from what its target has: it has to be created anew."""
