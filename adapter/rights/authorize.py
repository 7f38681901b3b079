"""The check of a statement: made before it runs, whatever it is and however it was planned.

It is made once for each state of the catalog and version of the session's variables: GRANT, REVOKE
and ALTER ROLE change the state, SET ROLE the version. Superusers pass.
"""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from foreshore import blocking
from foreshore.adapter.rights.checker import Checker
from foreshore.adapter.rights.rules import RULES
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.needs import require_all
from foreshore.catalog.state import SYSTEM_TABLES
from foreshore.errors import InsufficientPrivilege
from foreshore.ids import GlobalId

if TYPE_CHECKING:
    from foreshore.adapter.statement.context import StatementContext


FEW = 64  # entries of a list, for each of which the rights are looked up on the event loop


async def authorize_any(context: "StatementContext") -> None:
    """Do as `authorize`, on a thread if the statement has a long list."""
    if context.role.superuser or not _has_long_list(context.prepared.made.plan):
        authorize(context)
    else:
        await blocking.run(None, authorize, context)


def _has_long_list(plan: Any) -> bool:
    """Return whether a field of a plan is a list of more than a few names, columns or the like."""
    values = (getattr(plan, field.name) for field in fields(plan))
    return any(isinstance(each, tuple) and len(each) > FEW for each in values)


def authorize(context: "StatementContext") -> None:
    """Raise InsufficientPrivilege unless the role of the session may run the statement."""
    if context.variables["restrict_to_user_objects"] == "on":
        _refuse_system_relations(context)
    role, prepared, planner = context.role, context.prepared, context.planner
    state, version = planner.state, context.variables.plan_version
    found = prepared.found_allowed
    if found[0] is state and found[1] == version:
        return
    if not role.superuser:
        reader = planner.reader()
        require_all(reader.state, reader.planned, role, prepared.made.needs)
        RULES[type(prepared.made.plan)](Checker(context), prepared.made.plan)
    prepared.found_allowed = state, version


def _refuse_system_relations(context: "StatementContext") -> None:
    """Raise if the statement names a system relation that is not of the information schema.

    What a view reads is decided when it is created.
    """
    prepared = context.prepared
    for need in (*prepared.made.needs, *getattr(prepared.made.plan, "needs", ())):
        builtin = BUILTINS.get(GlobalId(need.object))
        named = builtin or next((each for each in SYSTEM_TABLES if each.id == need.object), None)
        if named is not None and getattr(named, "schema", "") != "information_schema":
            raise InsufficientPrivilege(
                f'system relation "{named.name}" cannot be read: restrict_to_user_objects is on'
            )
