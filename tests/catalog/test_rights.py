"""Rights: of owners, of PUBLIC, by membership, and on columns."""

from msgspec.structs import replace

from foreshore.catalog.bootstrap import opened_to_all
from foreshore.catalog.item import Database, Item, Membership, Role, Schema
from foreshore.catalog.rights import holds, holds_on_columns, is_member, owns
from foreshore.catalog.state import State, empty, with_objects
from foreshore.catalog.transaction import Transaction
from foreshore.ids import GlobalId
from foreshore.privileges import PUBLIC, Grant

OWNER = Role("o2", 20_001, "owner", superuser=False)
READER = Role("o3", 20_002, "reader", superuser=False)
READERS = Role("o4", 20_003, "readers", superuser=False, login=False)
DATABASE = Database("d1", 20_010, "d", OWNER.id)
SCHEMA = Schema("n1", 20_011, DATABASE.id, "s", OWNER.id)
TABLE = Item(GlobalId("u1"), 20_012, "table", SCHEMA.id, "t", OWNER.id, "")


def _state(*objects: Role | Schema | Item) -> State:
    all_objects = (OWNER, READER, READERS, DATABASE, SCHEMA, TABLE, *objects)
    return with_objects(empty(), {each.id: each for each in all_objects})


def test_without_grants_an_owner_has_all_and_others_what_public_has() -> None:
    state = _state()
    assert holds(state, OWNER, TABLE, "DELETE")
    assert holds(state, OWNER, SCHEMA, "CREATE")
    assert not holds(state, READER, TABLE, "SELECT")
    assert not holds(state, READER, SCHEMA, "USAGE")
    assert holds(state, READER, DATABASE, "CONNECT")
    assert not holds(state, READER, DATABASE, "CREATE")
    assert holds(state, replace(READER, superuser=True), TABLE, "DELETE")


def test_rights_granted_to_a_role_are_those_of_members_that_inherit() -> None:
    granted = replace(TABLE, grants=(Grant(READERS.id, OWNER.id, "r"),))
    member = replace(READER, member_of=(Membership(READERS.id, OWNER.id),))
    state = _state(member, granted)
    assert holds(state, member, granted, "SELECT")
    assert not holds(state, member, granted, "UPDATE")
    assert not holds(state, OWNER, granted, "SELECT"), "an owner can revoke its own rights"
    assert owns(state, OWNER, OWNER.id)
    assert not owns(state, member, OWNER.id)
    without = replace(member, inherit=False)
    state = _state(without, granted)
    assert not holds(state, without, granted, "SELECT")
    assert is_member(state, without, READERS.id)
    assert not is_member(state, without, OWNER.id)


def test_rights_on_columns_and_of_public() -> None:
    granted = replace(
        TABLE,
        column_grants={1: (Grant(PUBLIC, OWNER.id, "r"),), 2: (Grant(READER.id, OWNER.id, "rw"),)},
    )
    state = _state(granted)
    assert holds_on_columns(state, READER, granted, "SELECT", [1, 2])
    assert not holds_on_columns(state, READER, granted, "SELECT", [1, 3])
    assert not holds_on_columns(state, READER, granted, "UPDATE", [1, 2])
    assert holds_on_columns(state, OWNER, granted, "UPDATE", [1, 2, 3])
    assert not holds(state, READER, granted, "SELECT")


def test_public_schemas_of_older_directories_are_open_and_newer_ones_as_they_were_made() -> None:
    old = (
        Schema("n1", 20_011, DATABASE.id, "public", OWNER.id),
        Schema("n7", 20_014, "d2", "public", OWNER.id),
        Schema("n8", 20_015, "d2", "private", OWNER.id),
    )
    opened = [each for each in map(opened_to_all, old) if isinstance(each, Schema)]
    assert [holds(_state(), READER, each, "USAGE") for each in opened] == [True, True, False]
    change = Transaction(_state(replace(SCHEMA, name="old")))
    made = change.create_schema(DATABASE.id, "public", OWNER.id)
    change.rename(made, "another")
    renamed = change.rename(SCHEMA, "public")
    for each in (made, renamed):
        assert opened_to_all(each) is each
        assert isinstance(each, Schema)
        assert not holds(change.state, READER, each, "USAGE")
