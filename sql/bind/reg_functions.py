"""Names of functions, operators, roles, collations and text search objects, and their oids.

Each is an SQL body over the catalog, as in `name_functions.py`: `to_regproc(text)` returns the oid
of an object, `_regproc_name(oid)` its name.
"""

from collections.abc import Iterator

from foreshore.sql.bind.sql_definition import Definition
from foreshore.types import OID, REG_NAMES, REGPROC, TEXT, SqlType, array_of

# Relations with one name for each object, by reg* type: oids, names, namespaces and what a message
# calls an object. Those without a namespace are found by one name.
_NAMED = (
    ("regrole", "pg_roles", "rolname", None, "42704", "role %"),
    ("regcollation", "pg_collation", "collname", "collnamespace", "42704",
     'collation % for encoding "UTF8"'),
    ("regconfig", "pg_ts_config", "cfgname", "cfgnamespace", "42704",
     "text search configuration %"),
    ("regdictionary", "pg_ts_dict", "dictname", "dictnamespace", "42704",
     "text search dictionary %"),
)  # fmt: skip
# The types of arguments as oids, from a list of names.
_TYPES = """(SELECT coalesce(string_agg(coalesce(CASE WHEN trim(a) = 'NONE' THEN 0::oid
      ELSE to_regtype(trim(a))::oid END, 0::oid)::text, ' ' ORDER BY n), '')
    FROM unnest(string_to_array({list}, ',')) WITH ORDINALITY AS u(a, n))"""
_NUMBER = "$1 ~ '^[0-9]+$'"


def reg_functions() -> Iterator[Definition]:
    """Yield the definitions, an internal one before those that call it."""
    yield from _functions()
    yield from _operators()
    for reg, relation, name, namespace, code, called in _NAMED:
        result = SqlType(reg)
        if namespace is None:
            found = f"r.{name} = (_name_parts($1))[1]"
            yield (
                f"to_{reg}",
                "text",
                result,
                f"""CASE WHEN {_NUMBER} THEN $1::oid
                ELSE (SELECT r.oid FROM pg_catalog.{relation} r WHERE {found}) END""",
            )
            shown = f"SELECT quote_ident(r.{name}) FROM pg_catalog.{relation} r WHERE r.oid = $1"
        else:
            yield (
                f"_{reg}_in",
                "text[]",
                result,
                f"""(SELECT min(r.oid) FROM pg_catalog.{relation} r
                JOIN pg_catalog.pg_namespace n ON n.oid = r.{namespace}
                WHERE r.{name} = $1[cardinality($1)] AND {_in_path("$1")})""",
            )
            yield (
                f"to_{reg}",
                "text",
                result,
                f"CASE WHEN {_NUMBER} THEN $1::oid ELSE _{reg}_in(_name_parts($1)) END",
            )
            shown = f"""SELECT CASE WHEN n.nspname = ANY (current_schemas(true)) THEN ''
                ELSE quote_ident(n.nspname) || '.' END || quote_ident(r.{name})
                FROM pg_catalog.{relation} r
                JOIN pg_catalog.pg_namespace n ON n.oid = r.{namespace} WHERE r.oid = $1"""
        before, after = called.split("%")
        yield _cast_of_text(reg, code, f"'{before}\"' || $1 || '\"{after} does not exist'")
        yield _name_of_oid(reg, shown)
    yield from _arrays()


def _arrays() -> Iterator[Definition]:
    """Yield the casts of arrays of names to reg* values, and back from their oids."""
    for reg in REG_NAMES:
        yield (
            f"_{reg}_of_texts",
            "text[]",
            array_of(SqlType(reg)),
            f"""CASE WHEN $1 IS NOT NULL THEN coalesce(
            (SELECT array_agg(_{reg}_of_text(u.x) ORDER BY u.i)
             FROM unnest($1) WITH ORDINALITY AS u(x, i)), '{{}}') END""",
        )
        yield (
            f"_{reg}_names",
            "oid[]",
            array_of(TEXT),
            f"""CASE WHEN cardinality($1) = 0 THEN '{{}}'::text[] ELSE
            (SELECT array_agg(_{reg}_name(u.x) ORDER BY u.i)
             FROM unnest($1) WITH ORDINALITY AS u(x, i)) END""",
        )


def _in_path(parts: str) -> str:
    """Return the condition that a namespace `n` is that of a name's parts, or is searched."""
    return f"""CASE WHEN cardinality({parts}) = 1 THEN n.nspname = ANY (current_schemas(true))
        ELSE n.nspname = _schema_part({parts}) END"""


def _cast_of_text(reg: str, code: str, message: str) -> Definition:
    """Return the cast of a text, which raises an error if there is no such object."""
    return (
        f"_{reg}_of_text",
        "text",
        SqlType(reg),
        f"""CASE WHEN $1 = '-' THEN 0::oid::{reg} WHEN $1 IS NOT NULL THEN coalesce(
        to_{reg}($1), _raised('{code}', {message})::oid::{reg}) END""",
    )


def _name_of_oid(reg: str, shown: str) -> Definition:
    """Return the name of a value; `shown` selects it for the oid $1."""
    return (
        f"_{reg}_name",
        "oid",
        TEXT,
        f"coalesce(({shown}), CASE WHEN $1 = 0 THEN '-' ELSE $1::text END)",
    )


def _functions() -> Iterator[Definition]:
    yield (
        "_function_count",
        "text[]",
        OID,  # their number
        f"""(SELECT count(*)::oid FROM pg_catalog.pg_proc p
        JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
        WHERE p.proname = $1[cardinality($1)] AND {_in_path("$1")})""",
    )
    yield (
        "_function_called",
        "text[]",
        REGPROC,
        f"""(SELECT CASE count(*) WHEN 1 THEN min(p.oid) END FROM pg_catalog.pg_proc p
        JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
        WHERE p.proname = $1[cardinality($1)] AND {_in_path("$1")})""",
    )
    yield (
        "to_regproc",
        "text",
        REGPROC,
        f"CASE WHEN {_NUMBER} THEN $1::oid ELSE _function_called(_name_parts($1)) END",
    )
    yield (
        "_regproc_of_text",
        "text",
        REGPROC,
        """CASE WHEN $1 = '-' THEN 0::oid::regproc WHEN $1 IS NOT NULL THEN coalesce(
        to_regproc($1), CASE WHEN _function_count(_name_parts($1)) > 1::oid
          THEN _raised('42725', 'more than one function named "' || $1 || '"')
          ELSE _raised('42883', 'function "' || $1 || '" does not exist') END::oid::regproc) END""",
    )
    name = """CASE WHEN n.nspname = ANY (current_schemas(true)) THEN ''
        ELSE quote_ident(n.nspname) || '.' END || quote_ident(p.proname)"""
    joined = """pg_catalog.pg_proc p
        JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace"""
    yield _name_of_oid("regproc", f"SELECT {name} FROM {joined} WHERE p.oid = $1")
    types = _TYPES.format(list="$2")
    yield (
        "_function_with",
        "text[] text",
        SqlType("regprocedure"),
        f"""(SELECT min(p.oid) FROM {joined} WHERE p.proname = $1[cardinality($1)]
        AND {_in_path("$1")} AND array_to_string(p.proargtypes::oid[], ' ') = {types})""",
    )
    yield (
        "to_regprocedure",
        "text",
        SqlType("regprocedure"),
        f"""CASE WHEN {_NUMBER} THEN $1::oid WHEN $1 LIKE '%(%)' THEN
        _function_with(_name_parts(split_part($1, '(', 1)),
                       left(substr($1, strpos($1, '(') + 1), -1)) END""",
    )
    yield _cast_of_text("regprocedure", "42883", """'function "' || $1 || '" does not exist'""")
    yield _name_of_oid(
        "regprocedure",
        f"""SELECT {name} || '(' || (SELECT coalesce(string_agg(format_type(a, NULL), ',' ORDER BY
            i), '') FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS u(a, i)) || ')'
        FROM {joined} WHERE p.oid = $1""",
    )


def _operators() -> Iterator[Definition]:
    stripped = "regexp_replace(split_part($1, '(', 1), '^pg_catalog[.]', '')"
    yield (
        "to_regoper",
        "text",
        SqlType("regoper"),
        f"""CASE WHEN {_NUMBER} THEN $1::oid ELSE (SELECT CASE count(*) WHEN 1 THEN min(o.oid) END
        FROM pg_catalog.pg_operator o WHERE o.oprname = {stripped}) END""",
    )
    types = _TYPES.format(list="left(substr($1, strpos($1, '(') + 1), -1)")
    yield (
        "to_regoperator",
        "text",
        SqlType("regoperator"),
        f"""CASE WHEN {_NUMBER} THEN $1::oid WHEN $1 LIKE '%(%)' THEN
        (SELECT min(o.oid) FROM pg_catalog.pg_operator o WHERE o.oprname = {stripped}
         AND o.oprleft::text || ' ' || o.oprright::text = {types}) END""",
    )
    for reg in ("regoper", "regoperator"):
        yield _cast_of_text(reg, "42883", "'operator does not exist: ' || $1")
    operators = "pg_catalog.pg_operator o WHERE o.oid = $1"
    yield _name_of_oid("regoper", f"SELECT o.oprname::text FROM {operators}")
    sides = (
        f"CASE WHEN o.{side} = 0 THEN 'NONE' ELSE format_type(o.{side}, NULL) END"
        for side in ("oprleft", "oprright")
    )
    shown = " || ',' || ".join(sides)
    yield _name_of_oid("regoperator", f"SELECT o.oprname || '(' || {shown} || ')' FROM {operators}")
