"""Compare the rights that a statement needs with those of a role.

The needs of a view's own query are those of the view's owner, whoever reads the view, unless it is
a SECURITY INVOKER view; then they are those of the role that runs the statement. They are looked up
here, at every level of views, so a new owner counts from the next statement on.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.item import Cluster, Database, Grantable, Item, Role, Schema
from foreshore.catalog.rights import (
    FOR_STATISTICS,
    FOR_SUPERUSERS,
    holds,
    holds_on_columns,
    may_act_as,
)
from foreshore.catalog.state import State
from foreshore.errors import InsufficientPrivilege
from foreshore.ids import GlobalId
from foreshore.privileges import Need, oid_of

if TYPE_CHECKING:
    from foreshore.catalog.planned import Planned


_SYSTEM_TABLES = ("pg_authid", "pg_statistic", "pg_user_mapping", "pg_largeobject")
_OVER = ("view", "subscription")  # what is read by its own query


def require_all(
    state: State, planned: "Mapping[GlobalId, Planned]", role: Role, needs: Iterable[Need]
) -> None:
    """Raise InsufficientPrivilege unless `role` has the rights that a statement needs."""
    seen: set[Need] = set()
    waiting = [*needs]
    while waiting:
        need = waiting.pop(0)
        if need in seen:
            continue
        seen.add(need)
        oid = oid_of(need.object)
        each = state.get(need.object) if oid is None else state.item_with(oid)
        if oid == 0 and not role.superuser:
            raise InsufficientPrivilege(
                "permission denied for a sequence that is not named by a constant"
            )
        holder = role
        if need.role is not None:
            owner = state.get(need.role)
            if not isinstance(owner, Role):  # it is missing, and has no rights
                raise InsufficientPrivilege(f"role {need.role[1:]} of a view does not exist")
            holder = owner
        if not isinstance(each, Item | Schema | Database | Cluster):
            _require_builtin(state, holder, need)
            continue
        if not _has(state, planned, holder, each, need):
            raise permission_denied(each)
        if isinstance(each, Item) and each.type in _OVER:
            below = _below(planned[each.id], each)
            if need.privilege == "SELECT":
                waiting += below
            else:  # no view can be written: it is to be locked
                waiting += _to_lock(state, need, below)


def _require_builtin(state: State, role: Role, need: Need) -> None:
    """Raise if a relation of the system is not for `role`."""
    builtin = BUILTINS.get(GlobalId(need.object))
    if builtin is None or role.superuser:
        return
    for_statistics = builtin.name in FOR_STATISTICS
    if builtin.name in FOR_SUPERUSERS or (
        for_statistics and not may_act_as(state, role, "pg_read_all_stats")
    ):
        kind = "table" if builtin.name in _SYSTEM_TABLES else "view"
        raise InsufficientPrivilege(f"permission denied for {kind} {builtin.name}")


def _below(planned: "Planned", view: Item) -> list[Need]:
    """Return what the view's own query needs, each with the role that needs it."""
    from msgspec.structs import replace

    owner = None if view.security_invoker is True else view.owner
    return [need if need.by_caller else replace(need, role=owner) for need in planned.needs]


def _to_lock(state: State, view: Need, below: Iterable[Need]) -> list[Need]:
    """Return what FOR UPDATE or LOCK TABLE of a view needs on the relations that it reads."""
    from msgspec.structs import replace

    return [
        replace(view, object=need.object, columns=(), role=need.role)
        for need in below
        if not need.by_caller and need.privilege == "SELECT"
        if isinstance(each := state.get(need.object), Item) and each.type in ("table", "view")
    ]


def _has(
    state: State,
    planned: "Mapping[GlobalId, Planned]",
    role: Role,
    each: Item | Schema | Database | Cluster,
    need: Need,
) -> bool:
    if role.superuser:
        return True
    if any(holds(state, role, each, privilege) for privilege in (need.privilege, *need.instead)):
        return True
    if not isinstance(each, Item) or not (need.columns or need.any_column):
        return False
    names = planned[each.id].desc.names
    positions = [names.index(name) + 1 for name in need.columns]
    if need.any_column:
        return any(
            holds_on_columns(state, role, each, need.privilege, (at,))
            for at in (each.column_grants or {})
        )
    return holds_on_columns(state, role, each, need.privilege, positions)


def permission_denied(each: Grantable) -> InsufficientPrivilege:
    """Return the error for a role without a right on an object."""
    kind = each.kind
    if isinstance(each, Item) and each.is_type:
        kind = "type"
    return InsufficientPrivilege(f"permission denied for {kind} {each.name}")
