"""CREATE TOKEN and DROP TOKEN, and who may see which tokens."""

import pyarrow as pa

from foreshore.adapter.client import Completed
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.adapter.statement.role_names import current_role, refuse_public, role_of
from foreshore.catalog import tokens
from foreshore.catalog.item import Role
from foreshore.errors import InvalidParameterValue, UndefinedObject
from foreshore.role_options import RoleName
from foreshore.sql.plan import CreateToken, DropToken

DAYS = 90  # for which a token is valid whose statement says nothing of it
_US_OF_DAY = 86_400_000_000


def create_token(context: StatementContext, plan: CreateToken) -> Selected:
    """Run CREATE TOKEN: return the token, which is shown this once."""
    role, now = _role(context, plan.role), context.times.clock.now() * 1000
    valid_until = now + DAYS * _US_OF_DAY if plan.valid_until is None else plan.valid_until
    if valid_until <= now:
        raise InvalidParameterValue("a token must be valid for some time")
    token = tokens.create_token(
        context.catalog_change(),
        current_role(context.planner, context.role),
        role,
        plan.name,
        now=now,
        valid_until=valid_until,
    )
    if not role.login:
        context.notice(f'role "{role.name}" is not permitted to log in', severity="WARNING")
    batch = pa.RecordBatch.from_arrays([pa.array([token.text()], pa.string())], names=["c0"])
    return Selected(plan.desc, BatchSource(batch), "CREATE TOKEN")


def drop_token(context: StatementContext, plan: DropToken) -> Completed:
    """Run DROP TOKEN."""
    role = _role(context, plan.role)
    try:
        tokens.drop_token(
            context.catalog_change(), current_role(context.planner, context.role), role, plan.name
        )
    except UndefinedObject:
        if not plan.if_exists:
            raise
        context.notice(f'token "{plan.name}" does not exist, skipping')
    return Completed("DROP TOKEN")


def _role(context: StatementContext, name: RoleName | None) -> Role:
    if name is None:
        return current_role(context.planner, context.role)
    refuse_public(name)
    return role_of(context, name)
