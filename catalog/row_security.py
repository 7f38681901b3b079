"""Which policies of row-level security count for a role, and which views depend on that."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from foreshore.catalog.item import Item, Role
from foreshore.catalog.rights import owns, roles_with_rights_of
from foreshore.catalog.state import State
from foreshore.errors import FeatureNotSupported, InsufficientPrivilege, ObjectInUse
from foreshore.ids import GlobalId
from foreshore.policy import PolicyOf, PolicyTexts, PolicyView
from foreshore.types import Datum


@dataclass(eq=False, slots=True)
class RowReader:
    """For whom names are looked up: the role whose policies count.

    With `refuses` (`row_security = off`), it is an error if rows would be hidden. `asked`: a plan
    depends on these two. `values` has the session's values, on which a plan depends if they were
    `fixed` in it.
    """

    role: str
    refuses: bool = False
    values: Callable[[str], Datum] | None = None
    asked: bool = False
    fixed: bool = False

    def value(self, name: str) -> Datum:
        """Return a value of the session that a plan has from now on."""
        assert self.values is not None, name
        self.fixed = True
        return self.values(name)


def is_subject(state: State, table: Item, role: Role) -> bool:
    """Return whether the policies of a table restrict a role."""
    if not table.row_security or role.superuser or role.bypass_rls:
        return False
    return bool(table.force_row_security) or not owns(state, role, table.owner)


def policies_for(
    state: State, texts_of: Callable[[Item], PolicyTexts], table: Item, reader: RowReader, id: str
) -> tuple[PolicyView, ...] | None:
    """Return the policies that count for the role `id`; None if none restrict it.

    Raises InsufficientPrivilege if some do and the reader refuses that.
    """
    reader.asked = True
    role = state.get(id)
    if not isinstance(role, Role):
        return ()  # it was dropped, and sees no rows
    if not is_subject(state, table, role):
        return None
    if reader.refuses:
        raise InsufficientPrivilege(
            f'query would be affected by row-level security policy for table "{table.name}"',
            hint="To disable the policy for the table's owner, use ALTER TABLE NO FORCE ROW LEVEL"
            " SECURITY."
            if owns(state, role, table.owner)
            else None,
        )
    return tuple(
        PolicyView(each.id, each.name, each.policy.command, each.policy.permissive, texts_of(each))
        for each in _chosen(state, table, role)
        if each.policy
    )


def _chosen(state: State, table: Item, role: Role) -> Iterator[Item]:
    """Yield the policies of a table that are for a role."""
    roles = roles_with_rights_of(state, role)
    for each in state.policies_of(table.id):
        if each.policy and (not each.policy.roles or not roles.isdisjoint(each.policy.roles)):
            yield each


def reads_secured(state: State, id: GlobalId) -> tuple[bool, bool]:
    """Return whether a view reads tables with row-level security, and whether as who reads it.

    The latter is so in functions, and in SECURITY INVOKER views.
    """
    secured = state.secured_tables
    found, by_reader = False, False
    if not secured:
        return found, by_reader
    seen: set[tuple[str, bool]] = set()
    waiting: list[tuple[str, bool]] = [(id, False)]
    while waiting:
        each, by = waiting.pop()
        item = state.get(each)
        if not isinstance(item, Item) or (each, by) in seen:
            continue
        seen.add((each, by))
        if each in secured:
            found, by_reader = True, by_reader or by
        elif item.type in ("view", "function") or each == id:
            by = by or item.is_function or item.security_invoker is True
            waiting += [(need, by) for need in item.depends_on]
    return found, by_reader


# --- what is maintained -----------------------------------------------------------------------


# The policies that count, by the table's oid and the role; None: the role sees all rows.
Reads = Mapping[tuple[int, str], object]


def reads_of(state: State, item: Item) -> Reads:
    """Return which policies count where a maintained item reads tables.

    A materialized view and a subscription read as their owners, views in them as theirs, and the
    policies' own subqueries as the role for which they count.
    """
    return reads_by(state, item.depends_on if item.on is None else [item.on], item.owner)


def reads_by(state: State, ids: Iterable[str], caller: str) -> Reads:
    """Return which policies count where a role, by its id, reads relations and functions."""
    found: dict[tuple[int, str], object] = {}
    seen: set[tuple[str, str]] = set()
    waiting: list[tuple[str, str]] = [(id, caller) for id in ids]
    while waiting:
        pair = waiting.pop()
        each, role = state.get(pair[0]), state.get(pair[1])
        if pair in seen or not isinstance(each, Item) or not isinstance(role, Role):
            continue
        seen.add(pair)
        if each.type == "table":
            policies = None
            if is_subject(state, each, role):
                policies = [p for p in _chosen(state, each, role) if _are_read_by(p)]
            named = each.oid, role.id  # altered tables may have other ids
            found[named] = None
            if policies is not None:
                found[named] = tuple(
                    (one.oid, one.policy.command, one.policy.permissive, one.policy.version)
                    for one in policies
                    if one.policy
                )
                waiting += [(need, role.id) for one in policies for need in one.depends_on]
        elif each.type == "view":
            reader = caller if each.security_invoker is True else each.owner
            waiting += [(need, reader) for need in each.depends_on]
        elif each.is_function:
            waiting += [(need, caller) for need in each.depends_on]
    return found


def _are_read_by(policy: Item) -> bool:
    of = policy.policy
    return isinstance(of, PolicyOf) and of.command in ("all", "select")


def is_maintained(state: State, item: Item) -> bool:
    """Whether an item's contents are computed by policies: not so an index of a table."""
    if item.type in ("materialized view", "subscription"):
        return True
    return item.on is not None and state.item(item.on).type == "view"


def check_maintained(old: State, new: State) -> None:
    """Raise ObjectInUse if a change gives what is maintained other rows by row-level security.

    Roles, memberships, owners and policies decide about these rows, so any of them may not change
    where it matters: what is maintained would be wrong.
    """
    if not old.secured_tables and not new.secured_tables:
        return
    for item in new.all(Item):
        before = old.get(item.id)
        if not isinstance(before, Item) or not is_maintained(new, item):
            continue
        if secured(reads_of(old, before)) != secured(reads_of(new, item)):
            raise ObjectInUse(
                f"row-level security of {item.kind} {item.name} cannot be changed",
                detail="Its rows are maintained, and other policies would count for them.",
                hint="Drop it, and create it again afterwards.",
            )
    for item in new.all(Item):
        if item.on is not None and is_maintained(new, item):
            check_index(new, item)


def check_index(state: State, index: Item) -> None:
    """Raise if an index is on a view whose owner does not see all rows of the tables below."""
    if secured(reads_of(state, index)):
        assert index.on is not None
        raise FeatureNotSupported(
            f'index "{index.name}" on view "{state.item(index.on).name}" cannot be maintained',
            detail="Row-level security restricts the owner of the view.",
            hint="Create a materialized view instead.",
        )


def secured(reads: Reads) -> Reads:
    """Return where a role does not see all rows."""
    return {pair: policies for pair, policies in reads.items() if policies is not None}


def check_replaced_by_owner(state: State, old: Item, depends_on: Iterable[GlobalId]) -> None:
    """Raise if a materialized view is replaced by another role than its owner, who sees other rows.

    `depends_on` is what the new one reads, as who replaces it.
    """
    new = replace(old, depends_on=tuple(depends_on))
    tables = {state.oids[oid] for oid, _ in reads_of(state, new)}
    if not tables.isdisjoint(state.secured_tables):
        raise FeatureNotSupported(
            f'materialized view "{old.name}" over tables with row-level security can be replaced'
            " by its owner only"
        )
