"""The rights of what goes on after its statement was checked: a running SUBSCRIBE.

They are compared again when a change of the catalog may have taken some away, and so are the
policies of row-level security by which it was planned.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foreshore.catalog.item import Cluster, Item, Object, Role
from foreshore.catalog.needs import permission_denied, require_all
from foreshore.catalog.rights import holds
from foreshore.catalog.row_security import reads_by, secured
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError, InsufficientPrivilege, ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.privileges import Need

if TYPE_CHECKING:
    from foreshore.catalog.catalog import Planned


@dataclass(frozen=True, slots=True)
class Watch:
    """The rights that a role needs while its statement runs, and the cluster that it uses."""

    role: str  # the id
    needs: tuple[Need, ...]
    cluster: str | None
    policies: frozenset[tuple[object, object]]  # that count for it: see `policies_of`

    def lost(self, state: State, planned: "Mapping[GlobalId, Planned]") -> DatabaseError | None:
        """Return why the statement has to end; None if its role has all that it needs."""
        role = state.get(self.role)
        if not isinstance(role, Role):
            return InsufficientPrivilege("the role of the session was dropped")
        try:
            require_all(state, planned, role, self.needs)
        except InsufficientPrivilege as error:
            return error
        except ValueError:  # names of columns, which are known by their names at the start
            return ObjectNotInPrerequisiteState("a column that is read was renamed")
        cluster = state.get(self.cluster or "")
        if isinstance(cluster, Cluster) and not holds(state, role, cluster, "USAGE"):
            return permission_denied(cluster)
        if policies_of(state, self.role, self.needs) != self.policies:
            return ObjectNotInPrerequisiteState("row-level security of what is read was changed")
        return None


def policies_of(
    state: State, role: str, needs: tuple[Need, ...]
) -> frozenset[tuple[object, object]]:
    """Return the policies that count for what a role needs, by table and role."""
    if not state.secured_tables:
        return frozenset()
    return frozenset(secured(reads_by(state, [each.object for each in needs], role)).items())


def may_take_rights(old: State, new: State) -> bool:
    """Return whether a role may have a right, or see a row, in `old` that it does not in `new`."""
    if _policies(old) != _policies(new):
        return True
    for id in new.changed(old):
        before, after = old.get(id), new.get(id)
        if before is None:
            continue
        if isinstance(before, Role) or _rights(before) != _rights(after):
            return True
    return False


def _policies(state: State) -> list[tuple[str, object, object]]:
    if not state.secured_tables:
        return []
    return [
        (each.id, each.policy, each.force_row_security)
        for each in state.all(Item)
        if each.policy is not None or each.row_security
    ]


def _rights(each: Object | None) -> tuple[object, ...]:
    names = ("owner", "grants", "column_grants", "security_invoker")
    return () if each is None else tuple(getattr(each, name, None) for name in names)
