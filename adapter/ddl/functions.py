"""CREATE, ALTER and DROP FUNCTION, COMMENT ON FUNCTION."""

from collections.abc import Iterable
from dataclasses import replace

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.drop import drop_objects, notify_cascaded
from foreshore.adapter.ddl.enums import plan_again
from foreshore.adapter.ddl.objects import add_item, schema_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.news import Notices
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.role_names import refuse_public, role_of
from foreshore.catalog.functions import alter_function, redefine_function
from foreshore.catalog.item import Item
from foreshore.errors import (
    AmbiguousFunction,
    DuplicateFunction,
    FeatureNotSupported,
    InvalidFunctionDefinition,
    InvalidSchemaName,
    UndefinedFunction,
    WrongObjectType,
)
from foreshore.expr.functions.function import arguments_of
from foreshore.in_turns import in_turns
from foreshore.python_functions.limits import check_allowed
from foreshore.sql.bind.definitions.functions import written_function
from foreshore.sql.bind.python_calls import check_same_handler
from foreshore.sql.plan import AlterFunction, CreateFunction, DropFunction
from foreshore.sql_function import SqlFunction
from foreshore.types import SqlType

_MAINTAINED = ("materialized view", "index", "subscription")


def create_function(context: StatementContext, plan: CreateFunction) -> Completed:
    """Run CREATE FUNCTION."""
    if plan.function.language == "python":
        check_allowed()
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
        add_item(
            context,
            plan,
            schema,
            plan.name.item,
            plan.depends_on,
            arguments=arguments,
            handler=plan.function.handler,
        )
        return Completed(f"CREATE {'AGGREGATE' if plan.function.is_aggregate else 'FUNCTION'}")
    if not plan.or_replace:
        raise DuplicateFunction(
            f'function "{plan.name.item}" already exists with same argument types'
        )
    _replace(context, same[0], plan)
    return Completed("CREATE FUNCTION")


def _replace(context: StatementContext, old: Item, plan: CreateFunction) -> None:
    """Let a function have another body; plan anew what uses it."""
    change = context.catalog_change()
    before = context.planner.reader().planned[old.id].function
    assert before is not None, old
    _check_replaceable(before, plan.function)
    above = change.state.items_above(old.id)
    if plan.depends_on & {old.id, *(each.id for each in above)}:
        raise FeatureNotSupported("recursive functions are not supported")
    if before.body != plan.function.body or _is_other_call(before, plan.function):
        _check_unused(above, old)
    alter_function(change, old, plan.sql, plan.depends_on, plan.function.handler)
    plan_again(context, change.state.item(old.id))


def _is_other_call(before: SqlFunction, now: SqlFunction) -> bool:
    """Whether calls of a function are other ones: in Python its volatility is part of them."""
    is_python = before.language == "python"
    return before.strict != now.strict or (is_python and before.volatility != now.volatility)


def _check_replaceable(before: SqlFunction, now: SqlFunction) -> None:
    if before.is_aggregate != now.is_aggregate:
        kind = "an aggregate function" if before.is_aggregate else "a function"
        raise WrongObjectType("cannot change routine kind", detail=f'"{now.name}" is {kind}.')
    kinds = [(each.result, each.columns, each.returns_set, each.language) for each in (before, now)]
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


async def alter(context: StatementContext, plan: AlterFunction) -> Completed:
    """Run ALTER FUNCTION or COMMENT ON FUNCTION."""
    item = function_called(context.planner, context.notice, plan.name, plan.types, if_exists=False)
    assert item is not None
    change = context.catalog_change()
    match plan.action:
        case "comment":
            change.comment(item, plan.value)
            return Completed("COMMENT")
        case "owner":
            assert plan.role is not None, plan
            refuse_public(plan.role)
            change.set_owner(item, role_of(context, plan.role))
        case _:
            await _redefine(context, item, plan)
    return Completed("ALTER FUNCTION")


async def _redefine(context: StatementContext, item: Item, plan: AlterFunction) -> None:
    """Give a function another name, schema or attributes; plan anew what uses it."""
    change = context.catalog_change()
    before = context.planner.reader().planned[item.id].function
    assert before is not None, item
    schema = change.state.objects[item.schema]
    name = plan.value if plan.action == "rename" and plan.value is not None else item.name
    if plan.action == "schema":
        moved = change.state.schema(getattr(schema, "database", "") or "", plan.value or "")
        if moved is None:
            raise InvalidSchemaName(f'schema "{plan.value}" does not exist')
        schema = moved
    same = change.state.functions_in(schema.id, name)
    if any(each.arguments == item.arguments and each.id != item.id for each in same):
        types = ", ".join(map(str, before.types))
        raise DuplicateFunction(
            f'function {name}({types}) already exists in schema "{schema.name}"'
        )
    after = replace(
        before,
        parts=(*before.parts[:-2], schema.name, name),
        strict=before.strict if plan.strict is None else plan.strict,
        volatility=plan.volatility or before.volatility,
    )
    if after.language == "python" and after.name != before.name:
        await blocking.run(None, check_same_handler, before, after)
    if _is_other_call(before, after):
        _check_unused(change.state.items_above(item.id), item)
    redefine_function(change, item, name, schema.id, written_function(after))
    plan_again(context, change.state.item(item.id))


def _check_unused(above: Iterable[Item], function: Item) -> None:
    """Raise if what is kept would change with the function."""
    for each in above:
        if each.type in _MAINTAINED or each.type == "table":
            raise FeatureNotSupported(
                f'function "{function.name}" cannot be replaced, because {each.kind} '
                f'"{each.name}" depends on it',
                hint="Drop it first, and create it again afterwards.",
            )


async def drop_function(context: StatementContext, plan: DropFunction) -> Completed:
    """Run DROP FUNCTION."""
    targets = []
    async for parts, types in in_turns(plan.functions):
        found = function_called(
            context.planner, context.notice, parts, types, if_exists=plan.if_exists
        )
        if found is not None:
            targets.append(found)
    notify_cascaded(context.notice, drop_objects(context, targets, cascade=plan.cascade))
    return Completed("DROP FUNCTION")


def function_called(
    planner: Planner,
    notice: Notices,
    parts: tuple[str, ...],
    types: tuple[SqlType, ...] | None,
    *,
    if_exists: bool,
) -> Item | None:
    """Return the function called `parts`, with these types if they are given.

    None, with a notice, if there is none and `if_exists` allows that.
    """
    found = planner.reader().find_functions(parts)
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
    notice(f"function {name} does not exist, skipping")
    return None
