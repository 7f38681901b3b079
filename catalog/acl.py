"""Lists of rights after GRANT and REVOKE, by the rules of PostgreSQL's acl.c.

There is one `Grant` for each grantee and grantor. Who has a right with grant option may give it to
others; if the option is taken away, what was given by it goes too (CASCADE) or is an error.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from foreshore.acl_text import AclItem
from foreshore.catalog.item import (
    Grantable,
    Item,
    Object,
)
from foreshore.errors import DependentObjectsStillExist, InvalidGrant
from foreshore.privileges import LETTERS, PUBLIC, Grant

_ORDER = "".join(LETTERS.values())

Grants = tuple[Grant, ...]
O = TypeVar("O", bound=Object)  # noqa: E741 - an object of any one collection


def letters(rights: str) -> str:
    """Return the letters, each once, in the order of aclitems."""
    return "".join(each for each in _ORDER if each in rights)


def both(rights: str, others: str) -> str:
    """Return the rights that are in both."""
    return "".join(each for each in _ORDER if each in rights and each in others)


def without(rights: str, others: str) -> str:
    """Return `rights` but for `others`."""
    return "".join(each for each in rights if each not in others)


def granted(
    grants: Grants, owner: str, grantor: str, grantee: str, rights: str, *, with_option: bool
) -> Grants:
    """Return the list after a grant of `rights`, with grant option if so."""
    if with_option:
        if grantee == PUBLIC:
            raise InvalidGrant("grant options can only be granted to roles")
        _check_not_back(grants, owner, grantor, grantee, rights)
    option = rights if with_option else ""
    return added(grants, Grant(grantee, grantor, rights, option))


def added(grants: Grants, more: Grant) -> Grants:
    """Return the list with another entry, merged with that of its grantee and grantor."""
    old = _entry(grants, more.grantee, more.grantor) or Grant(more.grantee, more.grantor, "")
    new = Grant(
        more.grantee,
        more.grantor,
        letters(old.rights + more.rights),
        letters(old.grantable + more.grantable),
    )
    return _with_entry(grants, new)


def revoked(
    grants: Grants,
    owner: str,
    grantor: str,
    grantee: str,
    rights: str,
    *,
    option_only: bool,
    cascade: bool,
) -> Grants:
    """Return the list without `rights`, or without the options to grant them.

    Raises DependentObjectsStillExist unless `cascade`, if others have rights by these options.
    """
    old = _entry(grants, grantee, grantor)
    if old is None:
        return grants
    new = Grant(
        grantee,
        grantor,
        old.rights if option_only else without(old.rights, rights),
        without(old.grantable, rights),
    )
    grants = _with_entry(grants, new)
    lost = without(old.grantable, new.grantable)
    if not lost or grantee in (PUBLIC, owner):
        return grants
    return _revoked_further(grants, owner, grantee, lost, cascade=cascade)


def _revoked_further(grants: Grants, owner: str, role: str, lost: str, *, cascade: bool) -> Grants:
    """Return the list without what `role` has given by options that it has lost."""
    for each in grants:
        if each.grantee == role:
            lost = without(lost, each.grantable)
    while lost:
        given = next((g for g in grants if g.grantor == role and both(g.rights, lost)), None)
        if given is None:
            break
        if not cascade:
            raise DependentObjectsStillExist(
                "dependent privileges exist", hint="Use CASCADE to revoke them too."
            )
        grants = revoked(grants, owner, role, given.grantee, lost, option_only=False, cascade=True)
    return grants


def _check_not_back(grants: Grants, owner: str, grantor: str, grantee: str, rights: str) -> None:
    """Raise if the grantor has its options only by the grantee."""
    if grantor == owner:
        return
    left = grants
    while given := next(
        (g for g in left if g.grantee == grantee and both(g.grantable, rights)), None
    ):
        left = revoked(left, owner, given.grantor, grantee, rights, option_only=True, cascade=True)
    if without(rights, options_of(left, owner, grantor)):
        raise InvalidGrant("grant options cannot be granted back to your own grantor")


def options_of(grants: Sequence[Grant], owner: str, role: str) -> str:
    """Return the rights that `role` itself, not by others, may give on: an owner all of them."""
    if role == owner:
        return _ORDER
    return letters("".join(each.grantable for each in grants if each.grantee == role))


def with_owner(grants: Grants, old: str, new: str) -> Grants:
    """Return the list of an object that changes its owner: all that the old one has and gave."""
    found: Grants = ()
    for each in grants:
        grantee = new if each.grantee == old else each.grantee
        grantor = new if each.grantor == old else each.grantor
        found = added(found, Grant(grantee, grantor, each.rights, each.grantable))
    return found


def without_role(grants: Grants, role: str) -> Grants:
    """Return the list without what a role has or has given."""
    return tuple(each for each in grants if role not in (each.grantee, each.grantor))


def owned_by(each: O, role: str) -> O:
    """Return an object with another owner, who has the rights of the former one."""
    changed: dict[str, object] = {"owner": role}
    if isinstance(each, Grantable) and each.grants:
        changed["grants"] = with_owner(each.grants, each.owner, role)
    if isinstance(each, Item) and each.column_grants:
        changed["column_grants"] = {
            at: with_owner(grants, each.owner, role) for at, grants in each.column_grants.items()
        }
    return msgspec.structs.replace(each, **changed)


def items(grants: Sequence[Grant], name_of: Callable[[str], str]) -> list[str]:
    """Return a list as PostgreSQL shows it, with the names of roles by their ids."""
    return [item(each, name_of) for each in grants]


def item(grant: Grant, name_of: Callable[[str], str]) -> str:
    """Return one entry, such as `reader=ar*/owner`."""
    grantee = "" if grant.grantee == PUBLIC else name_of(grant.grantee)
    return str(AclItem(grantee, name_of(grant.grantor), grant.rights, grant.grantable))


def _entry(grants: Sequence[Grant], grantee: str, grantor: str) -> Grant | None:
    return next((g for g in grants if (g.grantee, g.grantor) == (grantee, grantor)), None)


def _with_entry(grants: Grants, new: Grant) -> Grants:
    """Return the list with an entry in its place, or at the end; an entry of no rights goes."""
    old = _entry(grants, new.grantee, new.grantor)
    if not new.rights:
        return tuple(each for each in grants if each is not old)
    if old is None:
        return (*grants, new)
    return tuple(new if each is old else each for each in grants)
