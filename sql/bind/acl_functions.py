"""Functions of lists of rights, which name roles: their oids are looked up in the catalog.

acldefault('r', owner)    makeaclitem(grantee, grantor, 'SELECT', false)    aclexplode(list)
"""

from collections.abc import Iterator

from foreshore.sql import ast
from foreshore.sql.bind.sql_definition import Definition
from foreshore.types import TEXT, array_of

ACLEXPLODE = "aclexplode"
_NAME = "(SELECT min(r.rolname::text) FROM pg_catalog.pg_roles r WHERE r.oid = {})"
_OID = "coalesce((SELECT min(r.oid) FROM pg_catalog.pg_roles r WHERE r.rolname = e.{0}), 0::oid)"
_EXPLODED = f"""SELECT {_OID.format("grantor")} AS grantor, {_OID.format("grantee")} AS grantee,
    e.privilege AS privilege_type, e.is_grantable FROM _aclexplode(NULL) e"""


def acl_functions() -> Iterator[Definition]:
    """Yield acldefault and makeaclitem."""
    owner = _NAME.format("$2")
    yield "acldefault", "text oid", array_of(TEXT), f"_acldefault($1, {owner})"
    grantee = f"CASE $1 WHEN 0 THEN '' ELSE {_NAME.format('$1')} END"
    body = f"_makeaclitem({grantee}, {owner}, $3, $4)"
    yield "makeaclitem", "oid oid text bool", TEXT, body


def exploded(item: ast.FunctionRef, call: ast.FunctionCall) -> ast.SubqueryRef:
    """Return the query that aclexplode in FROM stands for."""
    from foreshore.sql.parse.parse import parse

    tree = parse(_EXPLODED)[0].ast
    assert isinstance(tree, ast.SelectStatement)
    select = tree.query.body
    assert isinstance(select, ast.Select)
    (rows,) = select.from_
    assert isinstance(rows, ast.FunctionRef)
    (explode,) = rows.calls
    assert isinstance(explode, ast.FunctionCall)
    explode.args = call.args
    return ast.SubqueryRef(tree.query, item.alias or ACLEXPLODE, item.columns, True, item.at)
