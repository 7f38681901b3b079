"""Functions of lists of rights, which name roles: their oids are looked up in the catalog.

acldefault('r', owner)    makeaclitem(grantee, grantor, 'SELECT', false)    aclexplode(list)
"""

from collections.abc import Iterator

from foreshore.sql.bind.sql_definition import Definition
from foreshore.types import OID, TEXT, array_of

_NAME = "(SELECT min(r.rolname::text) FROM pg_catalog.pg_roles r WHERE r.oid = {})"


def acl_functions() -> Iterator[Definition]:
    """Yield acldefault and makeaclitem, and the names and oids of all roles for aclexplode."""
    owner = _NAME.format("$2")
    yield "acldefault", "text oid", array_of(TEXT), f"_acldefault($1, {owner})"
    grantee = f"CASE $1 WHEN 0 THEN '' ELSE {_NAME.format('$1')} END"
    body = f"_makeaclitem({grantee}, {owner}, $3, $4)"
    yield "makeaclitem", "oid oid text bool", TEXT, body
    roles = "FROM pg_catalog.pg_roles r ORDER BY r.oid"
    yield "_role_names", "", array_of(TEXT), f"ARRAY(SELECT r.rolname::text {roles})"
    yield "_role_oids", "", array_of(OID), f"ARRAY(SELECT r.oid {roles})"
