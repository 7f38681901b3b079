"""Table functions: each is a scalar function that returns the array of its rows.

`unnest(f(args))` is the table function. Its errors are those of the scalar function, and any engine
that evaluates scalars and unnests arrays can run it. In a plan's FlatMap every table function
appends one column; functions with more columns in SQL, such as jsonb_each, compute the others from
that one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.errors import UndefinedFunction
from foreshore.expr.functions.function import TABLES, Literals, type_key
from foreshore.expr.functions.resolve import Candidate, choose, complete, spelled
from foreshore.expr.ir import Call, Column, Literal, Scalar
from foreshore.types import INT4, TEXT, ColumnType, SqlType, item_of


@dataclass(frozen=True, slots=True)
class ResolvedTable:
    """How to run a table function: unnest the array `Call(key, args, result)`.

    `names` are its columns. In `outputs`, one scalar for each column, `Column(i)` is the i-th
    argument, and the column after the last argument is the element. Most functions have just that
    one output.
    """

    key: str
    arg_types: tuple[SqlType, ...]
    result: SqlType  # of the scalar function `key`: an array
    element: ColumnType  # the column that FlatMap appends
    names: tuple[str, ...]
    outputs: tuple[Scalar, ...]


def is_table_function(name: str) -> bool:
    """Return whether `name` is a table function."""
    return name in TABLES


def _element_of(type: SqlType) -> SqlType:
    """Return the type of an array's elements or a map's values; else `type` itself."""
    return type.element or (item_of(type) if type.name == "map" else type)


def _text_at(document: Scalar, place: int) -> Scalar:
    """Return the text at a place of a jsonb array."""
    return Call("json_get_text(jsonb,int4)", (document, Literal(place, INT4)), TEXT)


def resolve_table(
    name: str, arg_types: Sequence[SqlType], literals: Literals = None
) -> ResolvedTable:
    """Return the table function `name` over these argument types; raises UndefinedFunction."""
    types = tuple(arg_types)
    entries = [e for e in TABLES.get(name, ()) if len(e[0].patterns) == len(types)]
    candidates = [Candidate(o.function, o.patterns, o.targets) for o, _ in entries]
    chosen = choose(name, tuple(map(type_key, types)), candidates)
    if chosen is None:
        raise UndefinedFunction(
            f"function {spelled(name, types)} does not exist",
            hint="No function matches the given name and argument types. "
            "You might need to add explicit type casts.",
        )
    resolved = complete(chosen, types, literals)
    table = next(t for o, t in entries if o.function is chosen.function)
    element = resolved.result.element
    assert element is not None, resolved
    item = Column(len(types), element)
    if table.names_of is not None:
        names = table.names_of(literals)
        columns: tuple[Scalar, ...] = tuple(_text_at(item, place) for place in range(len(names)))
        return ResolvedTable(
            resolved.key, resolved.arg_types, resolved.result, ColumnType(element), names, columns
        )
    given = [Column(0, type) for type in resolved.arg_types[:1]]
    more = tuple(
        Call(key, (*given, item), type or _element_of(given[0].type)) for key, type in table.more
    )
    columns = more if table.item_hidden else (*more, item) if table.item_last else (item, *more)
    return ResolvedTable(
        resolved.key,
        resolved.arg_types,
        resolved.result,
        ColumnType(element),
        table.names,
        columns,
    )
