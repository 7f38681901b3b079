"""CREATE FUNCTION and DROP FUNCTION."""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.drop import drop_objects, notify_cascaded
from foreshore.adapter.ddl.enums import plan_again
from foreshore.adapter.ddl.objects import add_item, schema_of
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.functions import alter_function
from foreshore.catalog.item import Item
from foreshore.errors import (
    AmbiguousFunction,
    DuplicateFunction,
    FeatureNotSupported,
    InvalidFunctionDefinition,
    UndefinedFunction,
)
from foreshore.expr.functions.function import type_key
from foreshore.sql.plan import CreateFunction, DropFunction
from foreshore.sql_function import SqlFunction
from foreshore.types import SqlType

_MAINTAINED = ("materialized view", "index", "subscription")


def create_function(context: StatementContext, plan: CreateFunction) -> Completed:
    """Run CREATE FUNCTION."""
    schema = schema_of(context, plan.name)
    if schema.temporary:
        raise FeatureNotSupported("temporary functions are not supported")
    change = context.catalog_change()
    arguments = arguments_of(plan.function.types)
    same = [
        each
        for each in change.state.functions_in(schema.id, plan.name.item)
        if each.arguments == arguments
    ]
    if not same:
        add_item(context, plan, schema, plan.name.item, plan.depends_on, arguments=arguments)
        return Completed("CREATE FUNCTION")
    if not plan.or_replace:
        raise DuplicateFunction(
            f'function "{plan.name.item}" already exists with same argument types'
        )
    _replace(context, same[0], plan)
    return Completed("CREATE FUNCTION")


def arguments_of(types: tuple[SqlType, ...]) -> tuple[str, ...]:
    """Return the keys of parameters' types by which functions of one name differ."""
    return tuple(type_key(SqlType("numeric") if t.name == "number" else t) for t in types)


def _replace(context: StatementContext, old: Item, plan: CreateFunction) -> None:
    """Let a function have another body; plan anew what uses it."""
    change = context.catalog_change()
    before = context.planner.reader().planned[old.id].function
    assert before is not None, old
    _check_replaceable(before, plan.function)
    above = change.state.items_above(old.id)
    if plan.depends_on & {old.id, *(each.id for each in above)}:
        raise FeatureNotSupported("recursive functions are not supported")
    if before.body != plan.function.body or before.strict != plan.function.strict:
        for each in above:
            if each.type in _MAINTAINED or each.type == "table":
                raise FeatureNotSupported(
                    f'function "{old.name}" cannot be replaced, because {each.kind} '
                    f'"{each.name}" depends on it',
                    hint="Drop it first, and create it again afterwards.",
                )
    alter_function(change, old, plan.sql, plan.depends_on)
    plan_again(context, change.state.item(old.id))


def _check_replaceable(before: SqlFunction, now: SqlFunction) -> None:
    kinds = [(each.result, each.columns, each.returns_set) for each in (before, now)]
    if kinds[0] != kinds[1]:
        raise InvalidFunctionDefinition(
            "cannot change return type of existing function",
            hint=f"Use DROP FUNCTION {_spelled(now)} first.",
        )
    for old, new in zip(before.parameters, now.parameters, strict=True):
        if old.name and old.name != new.name:
            raise InvalidFunctionDefinition(
                f'cannot change name of input parameter "{old.name}"',
                hint=f"Use DROP FUNCTION {_spelled(now)} first.",
            )
        if old.default is not None and new.default is None:
            raise InvalidFunctionDefinition(
                "cannot remove parameter defaults from existing function",
                hint=f"Use DROP FUNCTION {_spelled(now)} first.",
            )


def _spelled(function: SqlFunction) -> str:
    return f"{function.name}({','.join(map(str, function.types))})"


async def drop_function(context: StatementContext, plan: DropFunction) -> Completed:
    """Run DROP FUNCTION."""
    targets = []
    for parts, types in plan.functions:
        found = function_called(context, parts, types, if_exists=plan.if_exists)
        if found is not None:
            targets.append(found)
    notify_cascaded(context, drop_objects(context, targets, cascade=plan.cascade))
    return Completed("DROP FUNCTION")


def function_called(
    context: StatementContext,
    parts: tuple[str, ...],
    types: tuple[SqlType, ...] | None,
    *,
    if_exists: bool,
) -> Item | None:
    """Return the function called `parts`, with these types if they are given.

    None, with a notice, if there is none and `if_exists` allows that.
    """
    found = context.planner.reader().find_functions(parts)
    name = ".".join(parts)
    if types is not None:
        found = [each for each in found if each.arguments == arguments_of(types)]
        name = f"{name}({','.join(map(str, types))})"
    if len(found) > 1:
        raise AmbiguousFunction(
            f'function name "{name}" is not unique',
            hint="Specify the argument list to select the function unambiguously.",
        )
    if found:
        return found[0]
    message = (
        f'could not find a function named "{name}"'
        if types is None
        else f"function {name} does not exist"
    )
    if not if_exists:
        raise UndefinedFunction(message)
    context.notice(f"function {name} does not exist, skipping")
    return None
