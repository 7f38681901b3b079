"""Syntax of statements about metrics."""

from foreshore.metric_spec import MetricSpec
from foreshore.sql.ast.expressions import Syntax
from foreshore.sql.ast.query import TableRef


class MetricColumn(Syntax):
    """A column, and the name of its label."""

    column: str
    label: str
    at: int


class CreateMetricStatement(Syntax):
    """CREATE METRIC."""

    name: TableRef
    relation: TableRef
    labels: tuple[MetricColumn, ...]
    value: MetricColumn
    spec: MetricSpec
    if_not_exists: bool
