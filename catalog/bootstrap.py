"""The initial catalog of a new data directory."""

from foreshore.catalog.state import State, empty
from foreshore.catalog.transaction import Transaction

FIRST_ROLE = "foreshore"
FIRST_DATABASE = "foreshore"
FIRST_CLUSTER = "quickstart"
FIRST_SIZE = "embedded"


def first_state() -> State:
    """Return a state with the first role, its database with schema `public`, and a cluster."""
    transaction = Transaction(empty())
    role = transaction.create_role(FIRST_ROLE)
    transaction.create_database(FIRST_DATABASE, role.id)
    transaction.create_cluster(
        FIRST_CLUSTER, role.id, FIRST_SIZE, {}, [("r1", FIRST_SIZE)], managed=True
    )
    return transaction.state
