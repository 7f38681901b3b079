"""Bind WITH: common tables, which other queries read by name, and recursive ones.

A recursive query is `base UNION [ALL] step`, where the step reads the table that is being defined,
once, in its FROM list. It becomes a `Recursive` relation. The queries of WITH MUTUALLY RECURSIVE
read each other in any way; together they become a `LetRec`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from foreshore.errors import (
    AmbiguousColumn,
    DatatypeMismatch,
    FeatureNotSupported,
    InvalidColumnReference,
    SyntaxError_,
)
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Column,
    Constant,
    Let,
    LetRec,
    LocalGet,
    Map,
    Project,
    Recursive,
    Reduce,
    Relation,
)
from foreshore.expr.traversal import walk_relations
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import Body, BoundQuery, ordered_relation, plain_relation
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.planning import CommonTable, Planning
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.search_cycle import added_by_search, refuse_search
from foreshore.sql.bind.type_names import type_of_name
from foreshore.types import ColumnType, SqlType, format_type

Lets = tuple[Let | LetRec, ...]  # without bodies; each may use those before it

_NO_BODY = Constant((), ())


@contextmanager
def common_tables(
    planning: Planning,
    ctes: tuple[ast.CommonTable | ast.ChangingTable, ...],
    parent: Scope | None,
    *,
    recursive: bool | ast.MutualRecursion,
) -> Iterator[Lets]:
    """Make the queries of a WITH visible inside the block; `with_lets` then defines them."""
    if not ctes:
        yield ()
        return
    planning.common_tables.append({})
    try:
        if isinstance(recursive, ast.MutualRecursion):
            yield (_mutual(planning, ctes, parent, recursive),)
        else:
            yield tuple(
                [
                    Let(
                        *_bound(planning, each, parent, ctes[:place], recursive=recursive),
                        _NO_BODY,
                    )
                    for place, each in enumerate(ctes)
                ]
            )
    finally:
        planning.common_tables.pop()


def with_lets(lets: Lets, body: Relation) -> Relation:
    """Return `body`, which reads queries of a WITH, with their definitions."""
    for let in reversed(lets):
        body = msgspec.structs.replace(let, body=body)
    return body


def _bound(
    planning: Planning,
    common: ast.CommonTable | ast.ChangingTable,
    parent: Scope | None,
    before: tuple[ast.CommonTable | ast.ChangingTable, ...],
    *,
    recursive: bool,
) -> tuple[int, Relation]:
    """Add a query of WITH to the innermost `common_tables`; return its number and value."""
    tables = planning.common_tables[-1]
    _check_new(planning, common)
    if isinstance(common, ast.ChangingTable):
        if planning.bind_change is None or id(common) not in planning.changing:
            raise FeatureNotSupported(
                "WITH clause containing a data-modifying statement must be at the top level",
                position=common.at + 1,
            )
        return planning.bind_change(planning, common, before, tables)
    if recursive and _mentions(common.query, common.name):
        return _recursive(planning, common, parent)
    if isinstance(common, ast.CommonTable):
        refuse_search(common)
    with planning.apart_from_locks():
        bound = planning.binding.query(planning, common.query, parent, locking=True)
    names = _common_names(common, bound)
    relation, order = ordered_relation(bound)
    number = planning.new_let()
    tables[common.name] = CommonTable(
        number, names, columns_of(relation), order, origins=bound.origins
    )
    return number, relation


def _check_new(planning: Planning, common: ast.CommonTable | ast.ChangingTable) -> None:
    if common.name in planning.common_tables[-1]:
        raise AmbiguousColumn(
            f'WITH query name "{common.name}" specified more than once',
            sqlstate="42712",
            position=common.at + 1,
        )


def _mutual(
    planning: Planning,
    ctes: tuple[ast.CommonTable | ast.ChangingTable, ...],
    parent: Scope | None,
    recursion: ast.MutualRecursion,
) -> LetRec:
    """Return the queries of WITH MUTUALLY RECURSIVE, all of which see each other."""
    numbers, columns, queries = [], [], []
    for common in ctes:
        assert isinstance(common, ast.CommonTable)  # its syntax has no other
        queries.append(common)
        _check_new(planning, common)
        types = tuple(ColumnType(type_of_name(each, planning)) for each in common.types)
        numbers.append(planning.new_let())
        columns.append(types)
        planning.common_tables[-1][common.name] = CommonTable(numbers[-1], common.columns, types)
    values = tuple(
        _typed(planning, common, parent, [column.type for column in types])
        for common, types in zip(queries, columns, strict=True)
    )
    return LetRec(
        tuple(numbers), tuple(columns), values, _NO_BODY, recursion.limit, recursion.fails
    )


def _typed(
    planning: Planning, common: ast.CommonTable, parent: Scope | None, types: list[SqlType]
) -> Relation:
    """Return a query of WITH MUTUALLY RECURSIVE with columns of the types declared."""
    value = plain_relation(planning.binding.query(planning, common.query, parent, types))
    found = columns_of(value)
    if len(found) != len(types):
        raise InvalidColumnReference(
            f'WITH query "{common.name}" has {len(found)} columns available '
            f"but {len(types)} columns specified",
            position=common.at + 1,
        )
    scalars = []
    for place, (column, type) in enumerate(zip(found, types, strict=True)):
        given = Column(place, column.type, column.nullable)
        scalar = coerce(planning, given, type, "assignment", common.at)
        if scalar is None:
            raise DatatypeMismatch(
                f'WITH query "{common.name}" column {place + 1} has type '
                f"{format_type(column.type)} but type {format_type(type)} is specified",
                position=common.at + 1,
            )
        scalars.append(scalar)
    if all(isinstance(scalar, Column) for scalar in scalars):
        return value
    width = len(found)
    return Project(Map(value, tuple(scalars)), tuple(range(width, 2 * width)))


def _common_names(common: ast.CommonTable, bound: BoundQuery) -> tuple[str, ...]:
    if len(common.columns) > len(bound.names):
        raise InvalidColumnReference(
            f'WITH query "{common.name}" has {len(bound.names)} columns available '
            f"but {len(common.columns)} columns specified",
            position=common.at + 1,
        )
    return common.columns + bound.names[len(common.columns) :]


def _recursive(
    planning: Planning, common: ast.CommonTable, parent: Scope | None
) -> tuple[int, Relation]:
    """Return a query of WITH RECURSIVE that reads itself."""
    tables = planning.common_tables[-1]
    base_body, step_body, all = _recursive_parts(common)
    bound = planning.binding.query(planning, ast.Query(base_body, common.query.at), parent)
    names = _common_names(common, bound)
    base = plain_relation(bound)
    types = [column.type for column in columns_of(base)]
    added = added_by_search(planning, common, names)
    if added is not None:
        base, names = added.with_first(base), (*names, *added.added)
        step_body = added.carried(step_body)
    columns = tuple(ColumnType(column.type) for column in columns_of(base))
    number = planning.new_let()
    tables[common.name] = CommonTable(number, names, columns)
    step_query = ast.Query(step_body, step_body.at)
    step = plain_relation(planning.binding.query(planning, step_query, parent, types))
    if len(columns_of(step)) != len(columns):
        raise SyntaxError_(
            "each UNION query must have the same number of columns", position=step_query.at + 1
        )
    for i, (column, type) in enumerate(zip(columns_of(step), types, strict=False)):
        if column.type != type:
            raise DatatypeMismatch(
                f'recursive query "{common.name}" column {i + 1} has type {format_type(type)} '
                f"in non-recursive term but type {format_type(column.type)} overall",
                hint="Cast the output of the non-recursive term to the correct type.",
                position=common.at + 1,
            )
    if any(
        isinstance(node, Reduce)
        and node.aggregates
        and any(each == LocalGet(number, columns) for each in walk_relations(node))
        for node in walk_relations(step)
    ):
        raise _ill_formed(
            "aggregate functions are not allowed in a recursive query's recursive term",
            step_query.at,
        )
    if added is not None:
        step = added.with_next(step)
        assert [c.type for c in columns_of(step)] == [c.type for c in columns], "columns differ"
    result = planning.new_let()
    tables[common.name] = CommonTable(result, names, columns)
    return result, Recursive(number, base, step, all)


def _recursive_parts(common: ast.CommonTable) -> tuple[Body, ast.Select, bool]:
    """Return the base and the step of a recursive query, and whether UNION ALL combines them."""
    query, name = common.query, common.name
    body = query.body
    if not (isinstance(body, ast.SetOperation) and body.kind == "union") or query.ctes:
        raise _ill_formed(
            f'recursive query "{name}" does not have the form non-recursive-term UNION [ALL] '
            "recursive-term",
            common.at,
        )
    for clause, there in (
        ("ORDER BY", bool(query.order_by)),
        ("OFFSET", query.offset is not None),
        ("LIMIT", query.limit is not None),
    ):
        if there:
            raise FeatureNotSupported(
                f"{clause} in a recursive query is not implemented", position=query.at + 1
            )
    *first, step = body.inputs
    if any(_mentions(each, name) for each in first):
        raise _ill_formed(
            f'recursive reference to query "{name}" must not appear within its non-recursive term',
            common.at,
        )
    while isinstance(step, ast.Query) and not (
        step.ctes or step.order_by or step.limit or step.offset
    ):
        step = step.body
    count = _mentions(step, name)
    if count > 1:
        raise _ill_formed(
            f'recursive reference to query "{name}" must not appear more than once', common.at
        )
    if not isinstance(step, ast.Select) or not any(_reads(item, name) for item in step.from_):
        raise FeatureNotSupported(
            f'recursive reference to query "{name}" anywhere but in the FROM list of its '
            "recursive term, or in an outer join, is not supported",
            position=common.at + 1,
        )
    base: Body = first[0]
    if len(first) > 1:
        if common.search is not None or common.cycle is not None:
            raise FeatureNotSupported(
                "with a SEARCH or CYCLE clause, the left side of the UNION must be a SELECT",
                position=common.at + 1,
            )
        base = ast.SetOperation(body.kind, body.all, tuple(first), body.at)
    return base, step, body.all


def _reads(item: ast.FromItem, name: str) -> bool:
    """Return whether `item` is the relation `name`, or an inner join that contains it."""
    match item:
        case ast.TableRef():
            return item.name == (name,)
        case ast.JoinRef(kind="inner" | "cross"):
            return _reads(item.left, name) or _reads(item.right, name)
        case _:
            return False


def _ill_formed(message: str, at: int) -> SyntaxError_:
    return SyntaxError_(message, sqlstate="42P19", position=at + 1)


def _mentions(node: object, name: str) -> int:
    """Return the number of table references to `name` below `node`."""
    return sum(
        isinstance(each, ast.TableRef) and each.name == (name,) for each in ast.nodes_of(node)
    )
