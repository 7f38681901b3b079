"""Memberships against a model: a relation between roles, and what follows from it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.catalog.bootstrap import FIRST_ROLE, first_state
from foreshore.catalog.item import Role
from foreshore.catalog.rights import members_of, roles_with_rights_of
from foreshore.catalog.roles import (
    add_member,
    create_role,
    forget_role,
    is_admin,
    remove_member,
    role_called,
)
from foreshore.catalog.transaction import Transaction
from foreshore.errors import InvalidGrant
from tests.effort import examples

NAMES = ("a", "b", "c", "d", "e")
INHERIT = {"a": True, "b": False, "c": True, "d": False, "e": True}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "add", "add", "remove", "remove option", "forget")),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.booleans(),
    ),
    max_size=20,
)


def _ignore(message: str, severity: str) -> None:
    pass


def _reached(member_of: dict[tuple[str, str], bool], name: str, *, inherits: bool) -> set[str]:
    """Return the roles that `name` is a member of, or whose rights it has."""
    found = {name}
    for _ in NAMES:
        found |= {
            role
            for (member, role) in member_of
            if member in found and (INHERIT[member] or not inherits)
        }
    return found


@settings(max_examples=examples(200))
@given(STEPS)
def test_memberships_are_those_of_the_model(steps: list[tuple[str, str, str, bool]]) -> None:
    change = Transaction(first_state())
    actor = role_called(change.state, FIRST_ROLE)
    for name in NAMES:
        create_role(change, actor, name, {"inherit": INHERIT[name]}, replicates=False)
    member_of: dict[tuple[str, str], bool] = {}  # with admin option
    present = set(NAMES)
    for what, one, other, admin in steps:
        if one not in present or other not in present:
            continue
        role, member = role_called(change.state, one), role_called(change.state, other)
        if what == "forget":
            forget_role(change, role)
            present.remove(one)
            member_of = {pair: option for pair, option in member_of.items() if one not in pair}
        elif what == "add":
            circular = other in _reached(member_of, one, inherits=False)
            try:
                add_member(change, actor, role, member, actor.id, admin=admin, notice=_ignore)
            except InvalidGrant:
                assert circular
                continue
            assert not circular
            member_of[other, one] = admin or member_of.get((other, one), False)
        else:
            only = what == "remove option"
            remove_member(change, actor, role, member, option_only=only, warn=_ignore)
            if (other, one) in member_of:
                if only:
                    member_of[other, one] = False
                else:
                    del member_of[other, one]
        change.state.check()
    names = {role.id: role.name for role in change.state.all(Role)}
    for name in present:
        role = role_called(change.state, name)
        members = {names[id] for id in members_of(change.state, role)}
        assert members == _reached(member_of, name, inherits=False)
        having = {names[id] for id in roles_with_rights_of(change.state, role)}
        assert having == _reached(member_of, name, inherits=True)
        for other in present:
            may_admit = any(member_of.get((each, other)) for each in members)
            assert is_admin(change.state, role, role_called(change.state, other).id) == may_admit
