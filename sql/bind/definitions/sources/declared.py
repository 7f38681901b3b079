"""Bind the columns that are declared after the name of a source."""

from collections.abc import Sequence

from foreshore.errors import InvalidParameterValue
from foreshore.sources.outputs import Column
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.type_names import type_of_name
from foreshore.sql.bind.widths import check_columns
from foreshore.types import written_type


def declared_columns(
    planning: Planning, declared: Sequence[ast.ColumnDefinition]
) -> tuple[Column, ...]:
    """Return declared columns; raises if one is named twice or has a default."""
    check_columns([each.name for each in declared], defined=planning.defined)
    found: dict[str, Column] = {}
    for each in declared:
        with located(each.at):
            if each.default is not None:
                raise InvalidParameterValue("a column of a source has no default")
            type = written_type(type_of_name(each.type, planning))
            found[each.name] = Column(each.name, type, not each.not_null)
    return tuple(found.values())
