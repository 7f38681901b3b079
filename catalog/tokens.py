"""The access tokens of roles: who may create and drop them."""

import msgspec

from foreshore.catalog.item import Role, Token
from foreshore.catalog.predefined import REACHING_OUT
from foreshore.catalog.rights import members_of
from foreshore.catalog.roles import check_not_predefined, may_create_roles
from foreshore.catalog.transaction import Transaction
from foreshore.errors import (
    DatabaseError,
    DuplicateObject,
    InsufficientPrivilege,
    UndefinedObject,
)
from foreshore.tokens import AccessToken, new_token

MOST_TOKENS = 100  # of a role


def create_token(
    change: Transaction, actor: Role, role: Role, name: str, *, now: int, valid_until: int | None
) -> AccessToken:
    """Give a role a token; times are in microseconds since 1970, and None is for ever."""
    _check_may_change(change, actor, role)
    if any(each.name == name for each in role.tokens):
        raise DuplicateObject(f'token "{name}" of role "{role.name}" already exists')
    if len(role.tokens) >= MOST_TOKENS:
        raise DatabaseError(
            f'role "{role.name}" has {MOST_TOKENS} tokens already', sqlstate="54000"
        )
    token = new_token(role.id, change.allot("token"))
    kept = Token(token.number, name, token.digest(), now, valid_until)
    change.put(msgspec.structs.replace(role, tokens=(*role.tokens, kept)))
    return token


def drop_token(change: Transaction, actor: Role, role: Role, name: str) -> None:
    """Take a token from a role; raises UndefinedObject if there is none of this name."""
    _check_may_change(change, actor, role)
    kept = tuple(each for each in role.tokens if each.name != name)
    if len(kept) == len(role.tokens):
        raise UndefinedObject(f'token "{name}" of role "{role.name}" does not exist')
    change.put(msgspec.structs.replace(role, tokens=kept))


def _check_may_change(change: Transaction, actor: Role, role: Role) -> None:
    """Raise unless `actor` may let others be `role`, as by changing its password."""
    check_not_predefined(role)
    if actor.superuser or actor.id == role.id:
        return
    reaches = not REACHING_OUT.isdisjoint(members_of(change.state, role))
    if role.superuser or reaches or not may_create_roles(actor):
        raise InsufficientPrivilege(f'permission denied for the tokens of role "{role.name}"')
