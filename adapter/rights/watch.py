"""The rights of what goes on after its statement was checked: a SUBSCRIBE, a sink, a source.

They are compared again when a change of the catalog may have taken some away, and so are the
policies of row-level security by which a SUBSCRIBE was planned. A SUBSCRIBE ends then; a sink or a
source stops, and goes on where it was once its owner has the rights again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foreshore.catalog.item import Cluster, Connection, Item, Object, Role, Secret
from foreshore.catalog.needs import permission_denied, require_all
from foreshore.catalog.rights import holds
from foreshore.catalog.row_security import reads_by, secured
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError, InsufficientPrivilege, ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.privileges import Need, Privilege

if TYPE_CHECKING:
    from foreshore.catalog.planned import Planned


@dataclass(frozen=True, slots=True)
class Usage:
    """A cluster, connection or secret that is used, for which one of these rights suffices."""

    object: str  # the id
    rights: tuple[Privilege, ...] = ("USAGE",)
    role: str | None = None  # who needs it; None: whose statement it is


@dataclass(frozen=True, slots=True)
class Watch:
    """The rights that a role needs while its statement runs."""

    role: str  # the id
    needs: tuple[Need, ...]
    usages: tuple[Usage, ...]
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
        for usage in self.usages:
            used = state.get(usage.object)
            user = role if usage.role is None else state.get(usage.role)
            if isinstance(used, Cluster | Connection | Secret) and not (
                isinstance(user, Role)
                and any(holds(state, user, used, right) for right in usage.rights)
            ):
                return permission_denied(used)
        if policies_of(state, self.role, self.needs) != self.policies:
            return ObjectNotInPrerequisiteState("row-level security of what is read was changed")
        return None


def obstacle_of(
    state: State,
    planned: "Mapping[GlobalId, Planned]",
    item: Item,
    needs: tuple[Need, ...],
    used: Iterable[str],
) -> str | None:
    """Return why a sink or a source may not run for its owner; None if it may.

    `used` are connections and secrets. What a connection uses itself is its owner's matter, who
    needs the right to it.
    """
    usages = [*_usages(state, used, None)]
    if item.cluster is not None:  # on which CREATE let it be created
        usages.append(Usage(item.cluster, ("USAGE", "CREATE")))
    policies = policies_of(state, item.owner, needs)
    error = Watch(item.owner, needs, tuple(usages), policies).lost(state, planned)
    if error is None:
        return None
    owner = state.get(item.owner)
    name = owner.name if isinstance(owner, Role) else item.owner
    return f'{error.message}, and its owner "{name}" needs the right ({error.sqlstate})'


def _usages(state: State, used: Iterable[str], role: str | None) -> Iterator[Usage]:
    for id in used:
        yield Usage(id, role=role)
        if isinstance(each := state.get(id), Connection):
            yield from _usages(state, sorted(each.spec.needs), each.owner)


def policies_of(
    state: State, role: str, needs: tuple[Need, ...]
) -> frozenset[tuple[object, object]]:
    """Return the policies that count for what a role needs, by table and role."""
    if not state.secured_tables:
        return frozenset()
    return frozenset(secured(reads_by(state, [each.object for each in needs], role)).items())


def may_change_rights(old: State, new: State) -> bool:
    """Return whether a role's rights, or the rows that it sees, may differ in `old` and `new`.

    The end of an object takes away no right to another one, unless it is a role or a policy.
    """
    return any(_may_change_rights(old.get(id), new.get(id)) for id in new.changed(old))


def _may_change_rights(before: Object | None, after: Object | None) -> bool:
    if before is None:
        return isinstance(after, Item) and after.is_policy
    if after is None:
        return isinstance(before, Role) or (isinstance(before, Item) and before.is_policy)
    return _rights(before) != _rights(after)


_OF_ROLES = ("superuser", "inherit", "bypass_rls", "member_of")
_OF_OTHERS = (
    *("owner", "grants", "column_grants", "security_invoker"),
    *("policy", "row_security", "force_row_security"),
)


def _rights(each: Object) -> list[object]:
    names = _OF_ROLES if isinstance(each, Role) else _OF_OTHERS
    return [getattr(each, name, None) for name in names]
