"""ALTER ... OWNER TO and ALTER ... SET SCHEMA."""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.role_names import refuse_public, role_of
from foreshore.adapter.write.target import lock_to_alter
from foreshore.catalog.item import Item, Object
from foreshore.errors import FeatureNotSupported, InvalidSchemaName, WrongObjectType
from foreshore.sql.plan import SetOwner, SetSchema


async def set_owner(context: StatementContext, plan: SetOwner) -> Completed:
    """Run ALTER ... OWNER TO."""
    found = find_if_exists(
        context.planner,
        context.notice,
        plan.kind,
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    refuse_public(plan.role)
    role = role_of(context, plan.role)
    if found is not None:
        await _lock(context, found)
        if isinstance(found, Item) and found.type == "sequence" and found.owned_by:
            raise _linked(context.planner, found, "change owner of sequence")
        if isinstance(found, Item) and found.type == "index":
            hint = "Change the ownership of the index's table, instead."
            context.notice(
                f'cannot change owner of index "{found.name}"',
                severity="WARNING",
                sqlstate="01000",
                hint=hint,
            )
            return Completed(f"ALTER {plan.kind.upper()}")
        context.catalog_change().set_owner(found, role)
    return Completed(f"ALTER {plan.kind.upper()}")


async def set_schema(context: StatementContext, plan: SetSchema) -> Completed:
    """Run ALTER ... SET SCHEMA; dependents refer to the relation by its id, not by its name."""
    found = find_if_exists(
        context.planner,
        context.notice,
        plan.kind,
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is not None:
        assert isinstance(found, Item), found
        if found.type == "index":
            raise WrongObjectType(
                f'cannot change schema of index "{found.name}"',
                hint="Change the schema of the table instead.",
            )
        if found.owned_by:
            raise _linked(context.planner, found, "move an owned sequence into another schema")
        state = context.planner.state
        old = state.objects[found.schema]
        database = getattr(old, "database", None)
        schema = None if database is None else state.schema(database, plan.schema)
        if schema is None:
            raise InvalidSchemaName(f'schema "{plan.schema}" does not exist')
        await _lock(context, found)
        context.catalog_change().set_schema(found, schema)
    return Completed(f"ALTER {plan.kind.upper()}")


async def _lock(context: StatementContext, found: Object) -> None:
    if isinstance(found, Item) and found.type == "table":
        await lock_to_alter(context, [found.id])


def _linked(planner: Planner, sequence: Item, what: str) -> FeatureNotSupported:
    """Return the error for a sequence that follows its table."""
    assert sequence.owned_by
    table = planner.state.item(sequence.owned_by.table).name
    rest = f' "{sequence.name}"' if what.endswith("sequence") else ""
    return FeatureNotSupported(
        f"cannot {what}{rest}",
        detail=f'Sequence "{sequence.name}" is linked to table "{table}".',
    )
