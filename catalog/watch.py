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
from foreshore.catalog.rights import holds, may_act_as
from foreshore.catalog.row_security import reads_by, secured
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError, InsufficientPrivilege, ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.privileges import Need, Privilege
from foreshore.sinks.python import PythonTarget
from foreshore.sinks.spec import SinkSpec, is_place
from foreshore.sinks.webhook import WebhookTarget
from foreshore.sources.python import MemoSource, PythonSource
from foreshore.sources.spec import SourceSpec
from foreshore.sources.spec import is_place as is_place_of_source

if TYPE_CHECKING:
    from foreshore.catalog.planned import Planned


FILES = "files of the server"


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


@dataclass(frozen=True, slots=True)
class Privileged:
    """An act of a sink or a source that only superusers and members of a predefined role may do."""

    of: str
    members: str | None  # the predefined role's name

    def is_of(self, state: State, role: Role) -> bool:
        """Return whether a role may do so."""
        return role.superuser or (
            self.members is not None and may_act_as(state, role, self.members)
        )


def privilege_of(spec: SinkSpec | SourceSpec) -> Privileged | None:
    """Return what the owner of a sink or a source has to be allowed beside its rights, if any."""
    target = spec.target if isinstance(spec, SinkSpec) else spec
    match target:
        case PythonTarget() | PythonSource() | MemoSource():
            return Privileged("modules of Python", None)
        case WebhookTarget(private=True):
            return Privileged("private addresses", None)
    if isinstance(spec, SinkSpec):
        return Privileged(FILES, "pg_write_server_files") if is_place(spec.target) else None
    return Privileged(FILES, "pg_read_server_files") if is_place_of_source(spec) else None


def obstacle_of(
    state: State,
    planned: "Mapping[GlobalId, Planned]",
    item: Item,
    needs: tuple[Need, ...],
    used: Iterable[str],
    spec: SinkSpec | SourceSpec,
) -> str | None:
    """Return why a sink or a source may not run for its owner; None if it may.

    `used` are connections and secrets. What a connection uses itself is its owner's matter, who
    needs the right to it.
    """
    owner = state.get(item.owner)
    privilege = privilege_of(spec)
    if privilege is not None and isinstance(owner, Role) and not privilege.is_of(state, owner):
        return _lacking(owner.name, InsufficientPrivilege(f"permission denied for {privilege.of}"))
    usages = [*_usages(state, used, None)]
    if item.cluster is not None:  # on which CREATE let it be created
        usages.append(Usage(item.cluster, ("USAGE", "CREATE")))
    policies = policies_of(state, item.owner, needs)
    error = Watch(item.owner, needs, tuple(usages), policies).lost(state, planned)
    if error is None:
        return None
    return _lacking(owner.name if isinstance(owner, Role) else item.owner, error)


def _lacking(owner: str, error: DatabaseError) -> str:
    return f'{error.message}, and its owner "{owner}" needs the right ({error.sqlstate})'


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
