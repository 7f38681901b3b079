"""PostgreSQL's `has_..._privilege` and `pg_has_role`, as SQL bodies over the catalog.

`has_table_privilege([role,] table, privilege)` and similar take the role and the object by name or
oid. An unknown name or privilege is an error; an unknown oid of an object gives NULL, of a role
FALSE. `_asked` reads the privileges; `_permits` finds them in `mz_internal.mz_object_rights`, for
the roles whose rights the role has by `mz_internal.mz_role_rights`. Both relations follow
`catalog/rights.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from foreshore.sql.bind.sql_definition import Definition
from foreshore.types import BOOL, INT4, OID, TEXT

_ROLE = "role"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of object: SQL for the oid of the object with a name, or with the oid, `$1`.

    The first raises an error if there is none, the second is NULL.
    """

    by_name: str
    by_oid: str


def _named(
    relation: str, name: str, sqlstate: str, noun: str, *, schema: str = "pg_catalog"
) -> _Kind:
    """Return a kind whose objects have one catalog relation and unqualified names."""
    return _Kind(
        f"""coalesce((SELECT min(o.oid) FROM {schema}.{relation} o WHERE o.{name} = $1),
            _raised('{sqlstate}', '{noun} "' || $1 || '" does not exist')::oid)""",
        f"(SELECT min(o.oid) FROM {schema}.{relation} o WHERE o.oid = $1)",
    )


def _in_schemas(relation: str, noun: str) -> _Kind:
    """Return a kind of Materialize, whose objects are in schemas and are no relations."""
    parts = "_name_parts($1)"
    return _Kind(
        f"""coalesce((SELECT o.oid FROM mz_catalog.{relation} o
                JOIN mz_catalog.mz_schemas s ON s.id = o.schema_id
                JOIN pg_catalog.pg_namespace n ON n.oid = s.oid
                WHERE o.name = ({parts})[cardinality({parts})]
                  AND CASE WHEN _schema_part({parts}) IS NULL
                      THEN n.nspname = ANY (current_schemas(true))
                      ELSE n.nspname = _schema_part({parts}) END
                ORDER BY array_position(current_schemas(true), n.nspname) LIMIT 1),
            _raised('42704', '{noun} "' || $1 || '" does not exist')::oid)""",
        f"(SELECT min(o.oid) FROM mz_catalog.{relation} o WHERE o.oid = $1)",
    )


_RELATION = _Kind(
    """coalesce(_relation_oid($1),
        CASE WHEN cardinality(_name_parts($1)) = 1 OR EXISTS (
                SELECT 1 FROM pg_catalog.pg_namespace n
                WHERE n.nspname = (_name_parts($1))[cardinality(_name_parts($1)) - 1])
        THEN _raised('42P01', 'relation "' || array_to_string(_name_parts($1), '.')
                              || '" does not exist')::oid
        ELSE _raised('3F000', 'schema "' || (_name_parts($1))[cardinality(_name_parts($1)) - 1]
                              || '" does not exist')::oid END)""",
    "(SELECT min(c.oid) FROM pg_catalog.pg_class c WHERE c.oid = $1)",
)
# Errors are raised outside of subqueries, because subqueries may be computed for rows that are not
# needed.
_SEQUENCE = """CASE (SELECT min(c.relkind) FROM pg_catalog.pg_class c WHERE c.oid = {0})
    WHEN 'S' THEN {0}
    ELSE _raised('42809', '"' ||
        (SELECT min(c.relname::text) FROM pg_catalog.pg_class c WHERE c.oid = {0})
        || '" is not a sequence')::oid END"""
_KINDS = {
    "table": _RELATION,
    "any_column": _RELATION,
    "sequence": _Kind(_SEQUENCE.format("_table_named($1)"), _SEQUENCE.format("$1")),
    "type": _Kind(
        """coalesce(to_regtype($1)::oid,
            _raised('42704', 'type "' || $1 || '" does not exist')::oid)""",
        "(SELECT min(t.oid) FROM pg_catalog.pg_type t WHERE t.oid = $1)",
    ),
    "function": _Kind(
        """coalesce(to_regprocedure($1)::oid, CASE WHEN $1 LIKE '%(%'
            THEN _raised('42883', 'function "' || $1 || '" does not exist')::oid
            ELSE _raised('22P02', 'expected a left parenthesis')::oid END)""",
        "(SELECT min(p.oid) FROM pg_catalog.pg_proc p WHERE p.oid = $1)",
    ),
    "database": _named("pg_database", "datname", "3D000", "database"),
    "schema": _named("pg_namespace", "nspname", "3F000", "schema"),
    "language": _named("pg_language", "lanname", "42704", "language"),
    "tablespace": _named("pg_tablespace", "spcname", "42704", "tablespace"),
    "server": _named("pg_foreign_server", "srvname", "42704", "server"),
    "foreign_data_wrapper": _named(
        "pg_foreign_data_wrapper", "fdwname", "42704", "foreign-data wrapper"
    ),
    "cluster": _named("mz_clusters", "name", "42704", "cluster", schema="mz_catalog"),
    "connection": _in_schemas("mz_connections", "connection"),
    "secret": _in_schemas("mz_secrets", "secret"),
}
# The forms of a role: the parameter's type, and SQL for its oid. PUBLIC means every role.
_ROLES = (
    ("name", "CASE WHEN $1 = 'public' THEN 0::oid ELSE _role_named($1) END"),
    ("oid", "$1"),
    (None, "(SELECT min(r.oid) FROM pg_catalog.pg_roles r WHERE rolname = current_user)"),
)


# System functions, types and languages have the rights of PUBLIC, and are in no relation of rights.
_OF_PUBLIC = {"function": "X", "type": "U", "language": "U"}
_PERMITS = """CASE WHEN $1 IS NULL THEN NULL WHEN _is_superuser($1) THEN $3 <> ''
    ELSE EXISTS (
        SELECT 1 FROM mz_internal.mz_object_rights o
        JOIN mz_internal.mz_role_rights r ON r.has = o.grantee
        WHERE r.role = $1 AND r.kind = 'U' AND o.oid = $2 AND {}
          AND _gives(o.rights, o.grantable, $3)) END"""
FIRST_USER_OID = 16384


def privilege_functions() -> Iterator[Definition]:
    """Yield the functions; functions used by others come first."""
    yield (
        "_is_superuser",
        "oid",
        BOOL,
        """coalesce((SELECT bool_or(r.rolsuper) FROM pg_catalog.pg_roles r WHERE r.oid = $1),
            false)""",
    )
    yield (
        "_attributes_of",
        "oid",
        TEXT,
        """coalesce((SELECT min(split_part(split_part(p.privileges, '=', 2), '/', 1))
            FROM mz_catalog.mz_roles r
            JOIN mz_catalog.mz_system_privileges p ON split_part(p.privileges, '=', 1) = r.id
            WHERE r.oid = $1), '')""",
    )
    for name, parameters, columns in (
        ("_permits", "oid oid text", "o.position = 0"),
        ("_permits_column", "oid oid text int4", "o.position IN (0, $4)"),
        ("_permits_any", "oid oid text", "true"),
    ):
        yield name, parameters, BOOL, _PERMITS.format(columns)
    role = _named("pg_roles", "rolname", "42704", "role")
    yield "_role_named", "name", OID, role.by_name
    for kind, names in _KINDS.items():
        yield f"_{kind}_named", "text", OID, names.by_name
        yield f"_{kind}_with", "oid", OID, names.by_oid
        for type, role_oid in _ROLES:
            for object_type, find in (("text", "named"), ("oid", "with")):
                yield _privilege(kind, (type, role_oid), (object_type, f"_{kind}_{find}"))
    yield from _column_privileges()
    for type, role_oid in _ROLES:
        given = (type,) if type else ()
        yield (
            "has_parameter_privilege",
            " ".join((*given, "text", "text")),
            BOOL,
            _checked(
                "parameter", len(given) + 2, f"_is_superuser({role_oid}) AND _asked_here <> ''"
            ),
        )
        yield (
            "has_system_privilege",
            " ".join((*given, "text")),
            BOOL,
            _checked(
                "system",
                len(given) + 1,
                f"""_asked_here <> '' AND (_is_superuser({role_oid})
                    OR _gives(_attributes_of({role_oid}), '', _asked_here))""",
            ),
        )
    yield from _memberships()


def _checked(kind: str, arguments: int, body: str) -> str:
    """Return `body`, with NULL for a NULL argument and an error for an unknown privilege.

    The last argument names the privileges; `_asked_here` in `body` stands for their letters.
    """
    present = " AND ".join(f"${i} IS NOT NULL" for i in range(1, arguments + 1))
    asked = f"_asked('{kind}', ${arguments})"
    return f"CASE WHEN {present} THEN {body.replace('_asked_here', asked)} END"


def _privilege(kind: str, role: tuple[str | None, str], found: tuple[str, str]) -> Definition:
    """Return one `has_{kind}_privilege`; `found` is the object's type and the SQL that finds it."""
    type, role_oid = role
    first = 2 if type else 1
    object_type, find = found
    types = [*((type,) if type else ()), object_type, "text"]
    oid = f"{find}(${first})"
    permits = "_permits_any" if kind == "any_column" else "_permits"
    permitted = f"{permits}({role_oid}, {oid}, _asked_here)"
    if kind in _OF_PUBLIC:
        permitted = (
            f"CASE WHEN {oid} < {FIRST_USER_OID} AND NOT _is_superuser({role_oid})"
            f" THEN _gives('{_OF_PUBLIC[kind]}', '', _asked_here) ELSE {permitted} END"
        )
    # The privileges are read, which may fail, even if there is no such object; none is `-`.
    body = f"CASE WHEN _asked_here = '-' THEN NULL WHEN {oid} IS NOT NULL THEN {permitted} END"
    return f"has_{kind}_privilege", " ".join(types), BOOL, _checked(kind, len(types), body)


def _column_privileges() -> Iterator[Definition]:
    """Yield has_column_privilege for a column by name or by number, which may be unknown."""
    yield (
        "_column_named",
        "oid text",
        INT4,
        """coalesce(
            (SELECT min(a.attnum)::int4 FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = $1 AND a.attname = $2),
            _raised('42703', 'column "' || $2 || '" of relation "'
                || (SELECT min(c.relname::text) FROM pg_catalog.pg_class c WHERE c.oid = $1)
                || '" does not exist')::int4)""",
    )
    yield (
        "_column_with",
        "oid int2",
        INT4,
        """(SELECT min(a.attnum)::int4 FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = $1 AND a.attnum = $2)""",
    )
    for type, role_oid in _ROLES:
        first = 2 if type else 1
        for table_type, table in (("text", f"_table_named(${first})"), ("oid", f"${first}")):
            for column_type, find in (("text", "_column_named"), ("int2", "_column_with")):
                types = [*((type,) if type else ()), table_type, column_type, "text"]
                column = f"{find}({table}, ${first + 1})"
                body = (
                    f"CASE WHEN _asked_here = '-' THEN NULL WHEN {column} IS NOT NULL"
                    f" THEN _permits_column({role_oid}, {table}, _asked_here, {column}) END"
                )
                yield (
                    "has_column_privilege",
                    " ".join(types),
                    BOOL,
                    _checked("column", len(types), body),
                )


def _memberships() -> Iterator[Definition]:
    """Yield pg_has_role: superusers are members of every role, and every role of itself."""
    for type, role_oid in (("name", "_role_named($1)"), _ROLES[1], _ROLES[2]):
        given = (type,) if type else ()
        at = len(given) + 1
        for other_type, other in (("name", f"_role_named(${at})"), ("oid", f"${at}")):
            body = f"""_asked_here <> '-' AND (_is_superuser({role_oid})
                OR {role_oid} = {other} AND _gives('MU', '', _asked_here) OR EXISTS (
                SELECT 1 FROM mz_internal.mz_role_rights r
                WHERE r.role = {role_oid} AND r.has = {other}
                  AND _gives(r.kind, '', _asked_here)))"""
            yield (
                "pg_has_role",
                " ".join((*given, other_type, "text")),
                BOOL,
                _checked(_ROLE, at + 1, body),
            )
