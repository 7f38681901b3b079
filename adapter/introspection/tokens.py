"""Rows of mz_tokens."""

from collections.abc import Iterator

from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.item import Role
from foreshore.catalog.rights import owns
from foreshore.catalog.roles import may_create_roles


def token_rows(context: StatementContext) -> Iterator[Row]:
    """Yield the rows of mz_tokens: of roles whose rights the role has, or that it may change."""
    state, viewer = context.planner.state, context.role
    for role in state.all(Role):
        if may_create_roles(viewer) or owns(state, viewer, role.id):
            for each in role.tokens:
                yield {
                    "role_id": role.id,
                    "role": role.name,
                    "name": each.name,
                    "created_at": each.created_at,
                    "valid_until": each.valid_until,
                }
