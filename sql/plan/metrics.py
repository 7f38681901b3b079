"""Plans of statements about metrics."""

from dataclasses import dataclass

from foreshore.ids import GlobalId
from foreshore.item_view import Name
from foreshore.metric_spec import MetricSpec
from foreshore.sql.plan.query import WritePlan


@dataclass(frozen=True, slots=True)
class CreateMetric(WritePlan):
    """CREATE METRIC: a view with labels and a value, whose rows are shown at /metrics."""

    name: Name
    relation: GlobalId
    view: str  # the statement that creates it, with full names
    spec: MetricSpec
    if_not_exists: bool
