"""Functions defined as SQL expressions over catalog relations.

`pg_get_viewdef(oid)` looks up a definition; `'t'::regclass` looks up a name. Such a function has an
SQL body in which `$1`, `$2` stand for its arguments, and a call is replaced by its body when it is
bound. Other layers do not know these functions, so calls are planned, optimised and evaluated like
queries of a user.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import resolve_cast
from foreshore.expr.ir import (
    AnySubquery,
    Column,
    Exists,
    Join,
    Map,
    OuterColumn,
    Project,
    Scalar,
    ScalarSubquery,
)
from foreshore.sql import ast
from foreshore.sql.bind.acl_functions import acl_functions
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.catalog_functions import catalog_functions
from foreshore.sql.bind.name_functions import name_functions
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.privilege_functions import privilege_functions
from foreshore.sql.bind.reg_functions import reg_functions
from foreshore.sql.bind.scope import Scope, Slot
from foreshore.sql.bind.server_functions import server_functions
from foreshore.sql.rewrite.scalars import map_scalar, push_down
from foreshore.types import (
    BOOL,
    DATE,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    NAME,
    OID,
    REGCLASS,
    REGTYPE,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    TIMETZ,
    XID,
    ColumnType,
    SqlType,
    array_of,
)

if TYPE_CHECKING:
    pass

MAX_INLINING = 8
SMALL = 4  # in nodes
_TYPES = {
    "oid": OID,
    "oid[]": array_of(OID),
    "text": TEXT,
    "text[]": array_of(TEXT),
    "bool": BOOL,
    "int2": INT2,
    "int4": INT4,
    "int8": INT8,
    "name": NAME,
    "regclass": REGCLASS,
    "regtype": REGTYPE,
    "xid": XID,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
    "date": DATE,
    "time": TIME_OF_DAY,
    "timetz": TIMETZ,
    "interval": INTERVAL,
    "float8": FLOAT8,
}


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function given by its body, whose parameters are columns `_1`, `_2`, ..."""

    name: str
    parameters: tuple[SqlType, ...]
    result: SqlType
    body: str


_FUNCTIONS: dict[str, list[SqlFunction]] = {}


def _define(names: str, parameters: str, result: SqlType, body: str) -> None:
    """Define a function under each of `names`."""
    types = tuple(_TYPES[type] for type in parameters.split())
    for i in range(len(types), 0, -1):
        body = body.replace(f"${i}", f"_{i}")
    for name in names.split():
        _FUNCTIONS.setdefault(name, []).append(SqlFunction(name, types, result, body))


for _definition in chain(
    acl_functions(),
    name_functions(),
    reg_functions(),
    catalog_functions(),
    privilege_functions(),
    server_functions(),
):
    _define(*_definition)


def sql_function_names() -> frozenset[str]:
    """Return the names of all functions whose bodies are SQL."""
    return frozenset(_FUNCTIONS)


def find_sql_function(name: str, types: tuple[SqlType, ...]) -> SqlFunction | None:
    """Return the SQL-bodied function of that name for these arguments, or None."""
    if name not in _FUNCTIONS:
        return None
    fitting = [
        function
        for function in _FUNCTIONS[name]
        if len(function.parameters) == len(types)
        and all(
            source.name == "unknown" or resolve_cast(source, target, "implicit") is not None
            for source, target in zip(types, function.parameters, strict=True)
        )
    ]
    if not fitting:
        return None
    return max(fitting, key=lambda f: sum(a == b for a, b in zip(f.parameters, types, strict=True)))


@cache
def _body(text: str) -> ast.Expression:
    from foreshore.sql.parse.parse import parse_expression

    return parse_expression(text)


def inline(planning: Planning, function: SqlFunction, values: tuple[Scalar, ...]) -> Scalar:
    """Return the body of the function with `values`, of its parameters' types, substituted."""
    if planning.inlining >= MAX_INLINING:
        raise FeatureNotSupported(f"{function.name} is nested too deeply")
    scope = Scope(
        [ColumnType(type) for type in function.parameters],
        visible=[Slot(f"_{i}", i - 1) for i in range(1, len(values) + 1)],
    )
    hidden, planning.common_tables = planning.common_tables, []
    named = len(planning.qualified)
    planning.inlining += 1
    try:
        binder = planning.binding.expressions(planning, scope, Clause(function.name))
        result = binder.cast(binder.bind(_body(function.body)), function.result, 0)
    finally:
        planning.inlining -= 1
        planning.common_tables = hidden
        del planning.qualified[named:]

    return applied(result, values)


def applied(body: Scalar, values: tuple[Scalar, ...], once: frozenset[int] = frozenset()) -> Scalar:
    """Return `body`, whose only columns are its parameters, with `values` substituted.

    A larger value that occurs several times is computed once, as a column of the single row of
    `(SELECT body FROM (SELECT value))`. So nested calls grow by the sum of their bodies. Those
    with the numbers `once` are, whatever their size.
    """
    uses = Counter[int]()

    def count(node: Scalar, depth: int) -> Scalar | None:
        index = parameter_of(node, depth)
        if index is not None:
            uses[index] += 1
        return None

    map_scalar(body, count)
    shared = [
        i for i, value in enumerate(values) if uses[i] > 1 and (i in once or not _is_small(value))
    ]
    place = {index: i for i, index in enumerate(shared)}
    boundary = 1 if shared else 0

    def argument(node: Scalar, depth: int) -> Scalar | None:
        index = parameter_of(node, depth)
        if index is None:
            return None
        if index not in place:
            levels = depth + boundary
            return push_down(values[index], levels) if levels else values[index]
        type = type_of(values[index])
        return OuterColumn(depth, place[index], type) if depth else Column(place[index], type)

    applied = map_scalar(body, argument)
    if not shared:
        return applied
    row = Map(Join(()), tuple(push_down(values[i]) for i in shared))
    return ScalarSubquery(Project(Map(row, (applied,)), (len(shared),)), type_of(applied))


def parameter_of(node: Scalar, depth: int) -> int | None:
    """Return the parameter for which `node` stands, at `depth` boundaries within the body."""
    if isinstance(node, Column) and depth == 0:
        return node.index
    return node.index if isinstance(node, OuterColumn) and node.level == depth else None


def _is_small(value: Scalar) -> bool:
    """Return whether a value may be repeated: it has few nodes and no query."""
    nodes = 0

    def look(node: Scalar, depth: int) -> Scalar | None:
        nonlocal nodes
        nodes += SMALL + 1 if isinstance(node, Exists | ScalarSubquery | AnySubquery) else 1
        return node if nodes > SMALL else None

    map_scalar(value, look)
    return nodes <= SMALL


def function_named(name: str) -> SqlFunction:
    """Return the only function of that name."""
    (function,) = _FUNCTIONS[name]
    return function
