"""Bind CREATE TABLE ... AS and SELECT ... INTO.

The table is defined by the text of a CREATE TABLE, like any other.
"""

from dataclasses import replace

from foreshore.errors import SyntaxError_
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Column, Relation, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import plain_relation, project
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.definitions.table import bind_create_table
from foreshore.sql.bind.definitions.table_options import bound_on_commit
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.query import bind_query
from foreshore.sql.bind.result import lower_and_optimize
from foreshore.sql.bind.side_effects import split_calls
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.bind.widths import check_columns
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import CreateTableAs
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import RelationDesc, written_type


def bind_create_table_as(
    planning: Planning, statement: ast.CreateTableAsStatement
) -> CreateTableAs:
    """Return the plan of CREATE TABLE ... AS."""
    from foreshore.sql.parse.parse import parse

    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name, temporary=statement.temporary)
    on_commit = bound_on_commit(name, statement.on_commit)
    bound = bind_query(planning, statement.query, None)
    if len(statement.columns) > len(bound.names):
        raise SyntaxError_("too many column names were specified")
    names = statement.columns + bound.names[len(statement.columns) :]
    check_columns(names, defined=planning.defined)
    relation = plain_relation(bound)
    columns = ", ".join(
        f"{quote_identifier(column)} {written_type(each.type)}"
        for column, each in zip(names, columns_of(relation), strict=True)
    )
    text = f"CREATE TABLE {dotted(name.parts)} ({columns})"
    (definition,) = parse(text)
    assert isinstance(definition.ast, ast.CreateTableStatement), text
    table = bind_create_table(
        Planning(planning.catalog, text, binding=planning.binding), definition.ast
    )
    table = replace(table, on_commit=on_commit)
    relation = _in_columns(planning, relation, table.desc)
    source, over = split_calls(relation) or (relation, ())
    source = lower_and_optimize(source)
    as_of = None if statement.as_of is None else bind_as_of(planning, statement.as_of, source)
    with_data, if_not_exists = statement.with_data, statement.if_not_exists
    return CreateTableAs(table, source, over, with_data, if_not_exists, as_of)


def _in_columns(planning: Planning, relation: Relation, desc: RelationDesc) -> Relation:
    """Return rows with the types of the table, whose numerics without a scale keep digits."""
    columns = columns_of(relation)
    values: list[Scalar] = []
    for place, (column, target) in enumerate(zip(columns, desc.columns, strict=True)):
        value = coerce(
            planning, Column(place, column.type, column.nullable), target.type, "assignment", 0
        )
        assert value is not None, (column, target)
        values.append(value)
    return relation if all(isinstance(v, Column) for v in values) else project(relation, values)
