"""GRANT and REVOKE of rights on one object: by whom, which of them, and the new lists.

Who may grant depends on what the role may do itself (`grantor_for`, by PostgreSQL's rules): an
owner, and those who have an owner's rights, grant as the owner; others by the options they have.
What nobody may grant is left out with a warning, unless the role has no rights on the object.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from foreshore.catalog import acl
from foreshore.catalog.item import Grantable, Item, Role
from foreshore.catalog.rights import grants_on, kind_of, owns, roles_with_rights_of
from foreshore.catalog.state import is_system
from foreshore.catalog.transaction import Transaction
from foreshore.errors import InsufficientPrivilege, InvalidGrant, UndefinedColumn
from foreshore.privileges import PUBLIC, RIGHTS, Grant


@dataclass(frozen=True, slots=True)
class Giving:
    """A GRANT or REVOKE and its roles; `warn` sends a warning, given its message and SQLSTATE."""

    actor: Role
    grants: bool
    grantees: tuple[str, ...]  # ids of roles, or PUBLIC
    option: bool
    cascade: bool
    warn: Callable[[str, str], None]

    def applied(self, grants: acl.Grants, owner: str, grantor: str, rights: str) -> acl.Grants:
        """Return the list after granting or revoking `rights`."""
        for grantee in self.grantees:
            if self.grants:
                grants = acl.granted(
                    grants, owner, grantor, grantee, rights, with_option=self.option
                )
            else:
                grants = acl.revoked(
                    grants,
                    owner,
                    grantor,
                    grantee,
                    rights,
                    option_only=self.option,
                    cascade=self.cascade,
                )
        return grants


def change_rights(
    change: Transaction, giving: Giving, each: Grantable, rights: str | None, *, is_all: bool
) -> None:
    """Grant or revoke the letters `rights`, None for all that there are (`is_all`)."""
    if is_system(each.id):
        raise InsufficientPrivilege(f"permission denied: {each.name} is a system {each.kind}")
    kind = kind_of(each)
    asked = RIGHTS[kind] if rights is None else _fitting(giving, each, rights)
    grants = grants_on(each)
    grantor, options = grantor_for(change, giving.actor, each.owner, grants, asked)
    if not options and not _has_any(change, grantor, grants):
        raise InsufficientPrivilege(f"permission denied for {kind} {each.name}")
    allowed = acl.both(asked, options)
    _warn(giving, f'"{each.name}"', allowed, asked, is_all=is_all)
    new = giving.applied(grants, each.owner, grantor, allowed)
    if new != grants or each.grants is msgspec.UNSET:
        each = change.put(msgspec.structs.replace(each, grants=new))
    columns = acl.both(asked, RIGHTS["column"])
    if not giving.grants and kind == "table" and columns:
        assert isinstance(each, Item), each
        for position in each.column_grants or {}:
            _change_column(change, giving, each.id, position, "", columns)


def change_column_rights(
    change: Transaction,
    giving: Giving,
    item: Item,
    columns: Sequence[str],
    name: str,
    rights: str | None,
) -> None:
    """Grant or revoke rights on the column `name` of `item`, which has `columns`; None: all."""
    if name not in columns:
        raise UndefinedColumn(f'column "{name}" of relation "{item.name}" does not exist')
    _change_column(change, giving, item.id, columns.index(name) + 1, name, rights)


def _change_column(
    change: Transaction, giving: Giving, id: str, position: int, name: str, rights: str | None
) -> None:
    """Change the rights on a column; without a name it is one of all, which are not warned of."""
    item = change.state.item(id)
    asked = RIGHTS["column"] if rights is None else acl.letters(rights)
    grants = (item.column_grants or {}).get(position, ())
    together = (*grants_on(item), *grants)
    grantor, options = grantor_for(change, giving.actor, item.owner, together, asked)
    if not options and not _has_any(change, grantor, together):
        raise InsufficientPrivilege(f"permission denied for column {name} of relation {item.name}")
    allowed = acl.both(asked, options)
    if name:
        where = f'column "{name}" of relation "{item.name}"'
        _warn(giving, where, allowed, asked, is_all=rights is None)
    new = giving.applied(grants, item.owner, grantor, allowed)
    listed = {**(item.column_grants or {}), position: new}
    kept = {at: each for at, each in listed.items() if each}
    change.put(msgspec.structs.replace(item, column_grants=kept or msgspec.UNSET))


def _fitting(giving: Giving, each: Grantable, rights: str) -> str:
    """Return the rights without those that only other relations have, or raise."""
    kind = kind_of(each)
    more = acl.without(acl.letters(rights), RIGHTS[kind])
    if more and kind == "sequence":
        giving.warn(
            f'sequence "{each.name}" only supports USAGE, SELECT, and UPDATE privileges', "0LP01"
        )
    elif more:
        raise InvalidGrant(f"invalid privilege type USAGE for {kind}")
    return acl.both(rights, RIGHTS[kind])


def grantor_for(
    change: Transaction, actor: Role, owner: str, grants: Sequence[Grant], asked: str
) -> tuple[str, str]:
    """Return as which role `actor` grants the rights `asked`, and those that role may grant.

    It is the owner if the actor has its rights. Otherwise it is, of the actor and the roles whose
    rights it has, the one with the options for most of the rights.
    """
    if owns(change.state, actor, owner):
        return owner, acl.letters(asked)
    roles = sorted(roles_with_rights_of(change.state, actor), key=lambda id: id != actor.id)
    options = [(role, acl.both(asked, acl.options_of(grants, owner, role))) for role in roles]
    return max(options, key=lambda pair: len(pair[1]))


def _has_any(change: Transaction, role: str, grants: Sequence[Grant]) -> bool:
    found = change.state.objects[role]
    assert isinstance(found, Role), found
    roles = {PUBLIC, *roles_with_rights_of(change.state, found)}
    return any(each.grantee in roles for each in grants)


def _warn(giving: Giving, where: str, allowed: str, asked: str, *, is_all: bool) -> None:
    """Warn of rights that cannot be granted or revoked; of ALL, only if there are none."""
    if allowed and (is_all or allowed == acl.letters(asked)):
        return
    every = "not all" if allowed else "no"
    if giving.grants:
        giving.warn(f"{every} privileges were granted for {where}", "01007")
    else:
        giving.warn(f"{every} privileges could be revoked for {where}", "01006")
