"""Changes of policies in the catalog."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from foreshore.catalog.item import Item, Role
from foreshore.catalog.owned import database_of
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.errors import DuplicateObject, UndefinedObject
from foreshore.ids import GlobalId, is_builtin
from foreshore.policy import PolicyOf


def policy_called(state: State, table: Item, name: str) -> Item:
    """Return a policy of a table; raises UndefinedObject."""
    found = state.policy_on(table.id, name)
    if found is None:
        raise UndefinedObject(f'policy "{name}" for table "{table.name}" does not exist')
    return found


def check_policy_name_free(state: State, table: Item, name: str) -> None:
    """Raise DuplicateObject if a table has a policy of this name."""
    if state.policy_on(table.id, name) is not None:
        raise DuplicateObject(f'policy "{name}" for table "{table.name}" already exists')


def create_policy(
    change: Transaction,
    table: Item,
    name: str,
    policy: PolicyOf,
    create_sql: str,
    depends_on: Iterable[GlobalId],
) -> Item:
    """Create a policy, which has the owner and schema of its table."""
    id, oid = change.allot_item(), change.allot("oid")
    item = Item(id, oid, "policy", table.schema, name, table.owner, create_sql, policy=policy)
    return redefine_policy(change, replace(item, keeps_digits=True), create_sql, depends_on)


def redefine_policy(
    change: Transaction, policy: Item, create_sql: str, depends_on: Iterable[GlobalId]
) -> Item:
    """Give a policy other expressions."""
    needs = tuple(sorted(each for each in depends_on if not is_builtin(each)))
    return change.put(
        replace(
            policy,
            create_sql=create_sql,
            policy=policy.policy and replace(policy.policy, version=policy.policy.version + 1),
            depends_on=needs,
            bound=change.state.bindings(needs),
            known=UNSET,
            known_keys=UNSET,
        )
    )


def set_row_security(change: Transaction, table: Item, actions: Collection[str]) -> Item:
    """Let the policies of a table count, or count for its owner too, or not."""
    fields: Mapping[str, tuple[str, bool]] = {
        "enable": ("row_security", True),
        "disable": ("row_security", False),
        "force": ("force_row_security", True),
        "no force": ("force_row_security", False),
    }
    for action in actions:
        field, value = fields[action]
        table = replace(table, **{field: value or UNSET})
    return change.put(table)


def without_role(change: Transaction, role: Role, database: str) -> list[Item]:
    """Take a role out of a database's policies, and return those that are for no other role."""
    alone = []
    for each in list(change.state.all(Item)):
        if database_of(change.state, each) != database:
            continue
        if each.policy and role.id in each.policy.roles:
            left = tuple(id for id in each.policy.roles if id != role.id)
            if left:
                change.put(replace(each, policy=replace(each.policy, roles=left)))
            else:
                alone.append(each)
    return alone
