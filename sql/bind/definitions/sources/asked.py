"""Bind the tables of a source that a statement asks for."""

from collections.abc import Sequence

from foreshore.errors import InvalidParameterValue
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.plan import AskedTable


def asked_tables(planning: Planning, tables: Sequence[ast.FedTable]) -> tuple[AskedTable, ...]:
    """Return the references of tables with the names of their relations; raises on repeats."""
    asked: list[AskedTable] = []
    for each in tables:
        called = None
        if each.name is not None:
            with located(each.name.at):
                called = planning.catalog.resolve_new(each.name.name)
        if any(each.reference == other.reference for other in asked):
            raise InvalidParameterValue(f'table "{each.reference}" is named twice')
        asked.append(AskedTable(each.reference, called))
    return tuple(asked)
