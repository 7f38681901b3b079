"""Bind CREATE METRIC: the view that has its series."""

from foreshore.errors import DatatypeMismatch, FeatureNotSupported, UndefinedColumn, WrongObjectType
from foreshore.item_view import ItemView
from foreshore.metric_spec import check_label, check_metric_name
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import CreateMetric
from foreshore.sql.rewrite.full_names import dotted

_READ = ("table", "source", "view", "materialized view")
_NUMBERS = frozenset("int2 int4 int8 uint2 uint4 uint8 float4 float8 numeric number".split())


def bind_create_metric(planning: Planning, tree: ast.CreateMetricStatement) -> CreateMetric:
    """Return the plan of CREATE METRIC."""
    with located(tree.name.at):
        name = planning.catalog.resolve_new(tree.name.name)
        check_metric_name(name.item)
    with located(tree.relation.at):
        item = planning.catalog.resolve_item(tree.relation.name)
        if item.kind not in _READ:
            raise WrongObjectType(
                f'"{item.name.item}" is not a table, source, view or materialized view'
            )
    if name.temporary or item.name.temporary:
        raise FeatureNotSupported("metrics must not use temporary relations")
    _check_value(tree.value, item)
    columns = [*map(lambda each: _labelled(each, item), tree.labels), _shown(tree.value)]
    view = (
        f"CREATE VIEW {dotted(name.parts)} AS SELECT {', '.join(columns)} "
        f"FROM {dotted(item.name.parts)}"
    )
    return CreateMetric(name, item.id, view, tree.spec, tree.if_not_exists)


def _labelled(column: ast.MetricColumn, item: ItemView) -> str:
    with located(column.at):
        _check_exists(column, item)
        check_label(column.label)
    return _shown(column)


def _shown(column: ast.MetricColumn) -> str:
    return f"{quote_identifier(column.column)} AS {quote_identifier(column.label)}"


def _check_exists(column: ast.MetricColumn, item: ItemView) -> None:
    if column.column not in item.desc.names:
        raise UndefinedColumn(f'column "{column.column}" does not exist')


def _check_value(column: ast.MetricColumn, item: ItemView) -> None:
    with located(column.at):
        _check_exists(column, item)
        type = item.desc.columns[item.desc.names.index(column.column)].type
        if type.name not in _NUMBERS:
            raise DatatypeMismatch(
                f'column "{column.column}" is of type {type}, but the value of a metric is a number'
            )
