"""What a metric of CREATE METRIC is, besides the view that has its series."""

import re
from typing import Literal as OneOf

import msgspec

from foreshore.errors import InvalidName, InvalidParameterValue

MetricKind = OneOf["gauge", "counter"]
SERIES = 1000  # of a metric that says nothing of it
MOST_SERIES = 10_000
VALUE = "value"  # the last column of a metric's view; the others are labels
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_OWN = ("foreshore_", "process_", "python_")  # prefixes of the server's own metrics


class MetricSpec(msgspec.Struct, frozen=True):
    """The kind and the help text of a metric, and how many series it may have."""

    kind: MetricKind = "gauge"
    help: str = ""
    most_series: int = SERIES


def exposed_names(name: str, kind: MetricKind) -> frozenset[str]:
    """Return the names that a metric takes at /metrics: two metrics must not share one."""
    if kind == "gauge":
        return frozenset((name,))
    family = name.removesuffix("_total")
    return frozenset((family, f"{family}_total"))


def check_metric_name(name: str) -> None:
    """Raise InvalidName if Prometheus would not accept the name, or the server uses it."""
    if not _NAME.fullmatch(name):
        hint = "It may have letters, digits, underscores and colons."
        raise InvalidName(f'"{name}" is not a valid name of a metric', hint=hint)
    if name.startswith(_OWN):
        raise InvalidName(f'"{name}" is like the names of the server\'s own metrics')


def check_label(name: str) -> None:
    """Raise InvalidName if Prometheus would not accept the name of a label."""
    if not _LABEL.fullmatch(name):
        hint = "Name it with AS: letters, digits and underscores."
        raise InvalidName(f'"{name}" is not a valid name of a label', hint=hint)


def check_most_series(number: int) -> int:
    """Return a limit on series; raises InvalidParameterValue."""
    if not 1 <= number <= MOST_SERIES:
        raise InvalidParameterValue(f"MAX SERIES must be between 1 and {MOST_SERIES}")
    return number
