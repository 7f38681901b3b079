"""Look up the objects that arguments of `reg*` types name.

An argument of type regclass, regtype, ..., or of an array of one, may be a name, which becomes its
object's oid when the statement runs, as a constant in a text does.
"""

from collections.abc import Sequence

from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.read.pipeline import read_result
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import all_rows
from foreshore.adapter.statement.sessions import Parser
from foreshore.datum import from_array
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Literal, Scalar
from foreshore.object_names import has_name, takes_names
from foreshore.types import TEXT, UNKNOWN, Datum, SqlType, category_of


async def resolve_names(session: Parser, context: StatementContext) -> StatementContext:
    """Return the context with the oids of objects that its arguments name.

    Raises UndefinedTable and its kind for a name without an object.
    """
    types = context.prepared.parameters
    named = [number for number, value in enumerate(context.args) if has_name(value, types[number])]
    if not named:
        return context
    places = [
        f"CAST(${at}::{'text[]' if types[number].element else 'text'} AS {types[number]})"
        for at, number in enumerate(named, 1)
    ]
    given = [context.args[number] for number in named]
    found = await _query_values(session, context, f"SELECT {', '.join(places)}", given)
    args = list(context.args)
    for number, value in zip(named, found, strict=True):
        args[number] = value
    return context.of(args)


async def query_args(
    session: Parser,
    context: StatementContext,
    text: str,
    args: Sequence[Scalar],
    parameters: Sequence[SqlType],
) -> tuple[Scalar, ...]:
    """Return the arguments of EXECUTE as literals; in `text` one of them is an object's name."""
    types = [
        TEXT if takes_names(type_of(arg)) and category_of(type) == "S" else type_of(arg)
        for arg, type in zip(args, parameters, strict=True)
    ]
    names = [f'"{number}"' for number in range(len(types))]
    shown = [
        f"{name}::text" if type == TEXT else name for name, type in zip(names, types, strict=True)
    ]
    sql = f"SELECT {', '.join(shown)} FROM (SELECT {text}) AS args ({', '.join(names)})"
    values = await _query_values(session, context, sql)
    return tuple(
        arg if type_of(arg) == UNKNOWN else Literal(value, type)
        for arg, value, type in zip(args, values, types, strict=True)
    )


async def _query_values(
    session: Parser, context: StatementContext, sql: str, args: Sequence[Datum] = ()
) -> Sequence[Datum]:
    """Return the values of a query with one row, which a statement needs before it runs."""
    prepared = context.planner.known(sql)
    if prepared is None:
        prepared = Prepared("", (await session.script(sql)).parsed[0])
        await context.planner.ready(prepared)
        context.planner.remember(prepared, sql)
    rows = await all_rows(await read_result(context.of(args, prepared)))
    assert prepared.desc is not None
    assert rows.num_rows == 1
    return [
        from_array(array, column.type)[0]
        for array, column in zip(rows.columns, prepared.desc.columns, strict=False)
    ]
