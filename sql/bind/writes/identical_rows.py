"""Rows of a table without a key, of which identical ones are one row with a multiplicity.

Equal values may look different, as 0 and -0 do. Columns are added that have their texts or stored
forms, so that a row is changed as it is, and no row that is merely equal to it.
"""

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Aggregate, Column, Project, Reduce, Relation
from foreshore.sql.bind.bound_query import AddedColumns
from foreshore.sql.lower.rows import keys_of, value_of


def told_apart(relation: Relation, width: int) -> tuple[Relation, tuple[int, ...]]:
    """Return a relation with columns added, and which of them differ if its first `width` do."""
    types = columns_of(relation)
    added = AddedColumns(types)
    places = tuple(map(added.place, keys_of(types, range(width))))
    return added.relation(relation), places


def identical_as_one(table: Relation, *aggregates: Aggregate) -> Relation:
    """Return the rows of a table, identical ones once, and aggregates over these."""
    types = columns_of(table)
    # A group shows 0 for -0, so values are made of what they are grouped by.
    grouped = Reduce(table, keys_of(types, range(len(types))), aggregates)
    shown = AddedColumns(columns_of(grouped))
    values = [
        shown.place(value_of(Column(i, column.type, column.nullable), type.type))
        for i, (column, type) in enumerate(zip(shown.columns, types, strict=False))
    ]
    return Project(shown.relation(grouped), (*values, *range(len(types), len(shown.columns))))
