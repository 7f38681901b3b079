"""Lists of rights against a model: rights are edges, and those that nothing leads to are gone."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.acl_text import AclItem, parse_acl_item
from foreshore.catalog import acl
from foreshore.errors import DependentObjectsStillExist, InvalidGrant
from foreshore.privileges import PUBLIC, Grant
from tests.effort import examples

OWNER, ROLES = "o1", ("o2", "o3", "o4")
RIGHTS = "arw"


@dataclass
class Model:
    """Who has given which right to whom, and whether with grant option."""

    given: dict[tuple[str, str, str], bool] = field(default_factory=dict)

    def may_grant(self, role: str, right: str, without: str | None = None) -> bool:
        """Return whether options lead from the owner to `role`, not by way of `without`."""
        reached, before = {OWNER}, 0
        while len(reached) > before:
            before = len(reached)
            for (grantor, grantee, each), option in self.given.items():
                if each == right and option and grantor in reached and grantee != without:
                    reached.add(grantee)
        return role in reached

    def prune(self) -> bool:
        """Drop what was given by roles without an option; return whether there was any."""
        lost = [key for key in self.given if not self.may_grant(key[0], key[2])]
        for key in lost:
            del self.given[key]
        return bool(lost)

    @property
    def entries(self) -> set[tuple[str, str, str, bool]]:
        return {(*key, option) for key, option in self.given.items()}


def _entries(grants: acl.Grants) -> set[tuple[str, str, str, bool]]:
    return {
        (each.grantor, each.grantee, right, right in each.grantable)
        for each in grants
        for right in each.rights
    }


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("grant", "revoke", "revoke option")),
        st.sampled_from((OWNER, *ROLES)),
        st.sampled_from((PUBLIC, *ROLES)),
        st.sampled_from(RIGHTS),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=examples(500))
@given(STEPS)
def test_grants_and_revokes_are_those_of_the_model(
    steps: list[tuple[str, str, str, str, bool]],
) -> None:
    grants: acl.Grants = ()
    model = Model()
    for what, grantor, grantee, right, flag in steps:
        key = (grantor, grantee, right)
        if right not in acl.options_of(grants, OWNER, grantor):
            assert not model.may_grant(grantor, right)
            continue
        assert model.may_grant(grantor, right)
        if what == "grant":
            refused = flag and (
                grantee == PUBLIC or not model.may_grant(grantor, right, without=grantee)
            )
            try:
                grants = acl.granted(grants, OWNER, grantor, grantee, right, with_option=flag)
            except InvalidGrant:
                assert refused
                continue
            assert not refused
            model.given[key] = flag or model.given.get(key, False)
        else:
            before = dict(model.given)
            if key in model.given:
                if what == "revoke option":
                    model.given[key] = False
                else:
                    del model.given[key]
            depends = model.prune()
            try:
                grants = acl.revoked(
                    grants,
                    OWNER,
                    grantor,
                    grantee,
                    right,
                    option_only=what == "revoke option",
                    cascade=flag,
                )
            except DependentObjectsStillExist:
                assert depends
                assert not flag
                model.given = before
                continue
            assert flag or not depends
        assert _entries(grants) == model.entries, (what, key)


def test_new_owner_has_what_the_old_one_had() -> None:
    grants = (Grant("o1", "o1", "arw"), Grant("o2", "o1", "r", "r"), Grant("o3", "o2", "r"))
    assert acl.with_owner(grants, "o1", "o2") == (
        Grant("o2", "o2", "arw", "r"),
        Grant("o3", "o2", "r"),
    )


def test_entries_are_read_as_they_are_written() -> None:
    for each in (
        AclItem("reader", "owner", "ar", "r"),
        AclItem("", "owner", "r", ""),
        AclItem('a "b"', "c-d", "rU", "U"),
    ):
        assert parse_acl_item(str(each)) == each
    assert str(AclItem("a b", "c", "ar", "r")) == '"a b"=ar*/c'
    assert parse_acl_item("reader") is None
