"""The domains with which columns of tables are declared. Elsewhere a column has the base type."""

from collections.abc import Mapping
from functools import lru_cache

from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.ids import GlobalId
from foreshore.sql import ast
from foreshore.sql.parse.parse import parse


def column_domains(state: State, id: GlobalId) -> Mapping[int, int]:
    """Return the oids of the domains of a table's columns, by the columns' positions from 0."""
    item = state.item(id)
    domains = {
        each.id: each.oid
        for need in item.depends_on
        if isinstance(each := state.get(need), Item) and each.type == "domain"
    }
    if not domains or item.feed:
        return {}
    named: dict[tuple[str, ...], int] = {
        name: domains[id] for name, id in item.bound if id in domains
    }
    declared = enumerate(_declared(item.create_sql))
    return {place: named[name] for place, name in declared if name in named}


@lru_cache(maxsize=1024)
def _declared(create_sql: str) -> tuple[tuple[str, ...], ...]:
    """Return the names of the types of a table's columns, of arrays none."""
    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, ast.CreateTableStatement), create_sql
    return tuple(
        () if each.type.dimensions else each.type.name
        for each in statement.ast.columns
        if isinstance(each, ast.ColumnDefinition)
    )
