"""Parse CREATE METRIC."""

from typing import Any

from foreshore.metric_spec import VALUE, MetricKind, MetricSpec, check_most_series
from foreshore.sql import ast
from foreshore.sql.parse.sinks import SinkParser


class MetricParser(SinkParser):
    """Parse statements about metrics."""

    def _create_metric(self) -> ast.StatementSyntax:
        if_not_exists = self._if_not_exists()
        name = self.table_name()
        self.expect("from")
        relation = self.table_name()
        self.expect("value")
        at = self.token.start
        value = ast.MetricColumn(self.name(), VALUE, at)
        labels = self.in_parentheses(self._metric_label) if self.accept("labels") else ()
        fields: dict[str, Any] = {}
        if self.accept("type"):
            fields["kind"] = self._metric_kind()
        if self.accept("help"):
            fields["help"] = self.string()
        if self.accept("max", "series"):
            fields["most_series"] = check_most_series(self.integer())
        spec = MetricSpec(**fields)
        return ast.CreateMetricStatement(name, relation, labels, value, spec, if_not_exists)

    def _metric_label(self) -> ast.MetricColumn:
        at = self.token.start
        column = self.name()
        return ast.MetricColumn(column, self.name() if self.accept("as") else column, at)

    def _metric_kind(self) -> MetricKind:
        if self.accept("gauge"):
            return "gauge"
        if self.accept("counter"):
            return "counter"
        self.fail()
