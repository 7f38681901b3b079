"""The roles of every directory, with PostgreSQL's names and oids, and what they give here.

They cannot log in, be altered or dropped, and have no rows in the catalog's shard: who is a member
of one is kept with the member. A superuser, or a member WITH ADMIN OPTION, makes others members.
"""

from collections.abc import Mapping
from types import MappingProxyType

from foreshore.catalog.item import Membership, Role
from foreshore.privileges import Privilege

PREFIX = "o_"  # of their ids


def id_of(name: str) -> str:
    """Return the id of the predefined role `name`."""
    return PREFIX + name


def _role(name: str, oid: int, *member_of: str) -> Role:
    memberships = tuple(Membership(id_of(each), "o1") for each in member_of)
    return Role(id_of(name), oid, name, superuser=False, login=False, member_of=memberships)


PREDEFINED = (
    _role("pg_database_owner", 6171),  # whoever owns the database of an object
    _role("pg_read_all_data", 6181),
    _role("pg_write_all_data", 6182),
    _role("pg_read_all_settings", 3374),
    _role("pg_read_all_stats", 3375),
    _role("pg_stat_scan_tables", 3377),
    _role("pg_monitor", 3373, "pg_read_all_settings", "pg_read_all_stats", "pg_stat_scan_tables"),
    _role("pg_read_server_files", 4569),
    _role("pg_write_server_files", 4570),
    _role("pg_execute_server_program", 4571),
    _role("pg_signal_backend", 4200),
    _role("pg_checkpoint", 4544),
)
DATABASE_OWNER = id_of("pg_database_owner")
MONITOR = id_of("pg_monitor")

# The rights that two of them give on every object of a kind of `privileges.RIGHTS`.
EVERYWHERE: Mapping[tuple[str, Privilege], frozenset[str]] = MappingProxyType(
    {
        ("table", "SELECT"): frozenset({id_of("pg_read_all_data")}),
        ("sequence", "SELECT"): frozenset({id_of("pg_read_all_data")}),
        ("schema", "USAGE"): frozenset({id_of("pg_read_all_data"), id_of("pg_write_all_data")}),
        ("table", "INSERT"): frozenset({id_of("pg_write_all_data")}),
        ("table", "UPDATE"): frozenset({id_of("pg_write_all_data")}),
        ("table", "DELETE"): frozenset({id_of("pg_write_all_data")}),
        ("sequence", "UPDATE"): frozenset({id_of("pg_write_all_data")}),
    }
)

# Whoever has one of these has the rights of the server's process: who may create roles must not
# get at them by that.
REACHING_OUT = frozenset(
    map(id_of, ("pg_read_server_files", "pg_write_server_files", "pg_execute_server_program"))
)


def is_predefined(id: str) -> bool:
    """Return whether the role with this id is one of them."""
    return id.startswith(PREFIX)
