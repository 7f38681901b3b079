"""CREATE SECRET and ALTER SECRET ... AS. Values are sealed before the catalog has them."""

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists, schema_of, skip_existing
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Secret
from foreshore.catalog.rights import holds, owns_object
from foreshore.errors import DuplicateObject, FeatureNotSupported, InsufficientPrivilege
from foreshore.sql.plan import AlterSecret, CreateSecret


def create_secret(context: StatementContext, plan: CreateSecret) -> Completed:
    """Run CREATE SECRET."""
    if plan.name.temporary:
        raise FeatureNotSupported("secrets cannot be temporary")
    state, schema = context.planner.state, schema_of(context, plan.name)
    if not holds(state, context.role, schema, "CREATE"):
        raise InsufficientPrivilege(f"permission denied for schema {schema.name}")
    name = plan.name.item
    with skip_existing(context, plan.if_not_exists):
        if state.secret_in(schema.id, name) is not None:
            raise DuplicateObject(f'secret "{name}" already exists')
        change = context.catalog_change()
        id = f"x{change.allot('x')}"
        sealed = context.names.secrets.sealed(id, plan.value)
        change.put(Secret(id, change.allot("oid"), schema.id, name, context.role.id, sealed))
    return Completed("CREATE SECRET")


def alter_secret(context: StatementContext, plan: AlterSecret) -> Completed:
    """Run ALTER SECRET ... AS."""
    found = find_if_exists(
        context.planner, context.notice, "secret", plan.name, if_exists=plan.if_exists, altered=True
    )
    if found is not None:
        assert isinstance(found, Secret), found
        if not owns_object(context.planner.state, context.role, found):
            raise InsufficientPrivilege(f"must be owner of secret {found.name}")
        sealed = context.names.secrets.sealed(found.id, plan.value)
        context.catalog_change().put(msgspec.structs.replace(found, sealed=sealed))
    return Completed("ALTER SECRET")
