"""Names of objects to oids and back, as SQL bodies over the catalog: `to_regclass` and casts."""

from collections.abc import Iterator

from foreshore.sql.bind.sql_definition import Definition
from foreshore.types import (
    OID,
    REGCLASS,
    REGNAMESPACE,
    REGTYPE,
    TEXT,
)


def name_functions() -> Iterator[Definition]:
    """Yield the definitions, an internal one before those that call it."""
    yield from _oids_of_names()
    yield from _casts_of_text()
    yield from _names_of_oids()


def _oids_of_names() -> Iterator[Definition]:
    # A name of two parts, or of one (then the first is NULL) that the search path resolves.
    yield (
        "_relation_in",
        "text text",
        REGCLASS,
        """(SELECT c.oid FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relname = $2
          AND CASE WHEN $1 IS NULL THEN n.nspname = ANY (current_schemas(true))
                   WHEN $1 = 'pg_temp' THEN n.oid = pg_my_temp_schema()
                   ELSE n.nspname = $1 END
        ORDER BY array_position(current_schemas(true), n.nspname) LIMIT 1)""",
    )
    # The parts of a name as `_name_parts` returns them: one, two, or three with the database first.
    yield (
        "_schema_part",
        "text[]",
        TEXT,
        """CASE cardinality($1)
        WHEN 1 THEN NULL
        WHEN 2 THEN $1[1]
        WHEN 3 THEN CASE WHEN $1[1] = current_database() THEN $1[2]
            ELSE _raised('0A000', 'cross-database references are not implemented: "'
                                  || array_to_string($1, '.') || '"') END
        ELSE _raised('42601', 'improper relation name (too many dotted names): '
                              || array_to_string($1, '.')) END""",
    )
    # It is found by the last part, which cannot fail. What is no name fails by its schema.
    yield (
        "_relation_oid",
        "text",
        REGCLASS,
        "_relation_in(_schema_part(_name_parts($1)), _last_part($1))",
    )
    yield (
        "to_regclass",
        "text",
        REGCLASS,
        """CASE WHEN $1 ~ '^[0-9]+$' THEN CAST($1::oid AS regclass)
            ELSE _relation_oid($1) END""",
    )
    # A type of the catalog by the parts of its name, or that of its arrays if $2.
    yield (
        "_type_in",
        "text[] bool",
        OID,
        """(SELECT CASE WHEN $2 THEN nullif(t.typarray, 0) ELSE t.oid END FROM pg_catalog.pg_type t
        JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
        WHERE (t.typtype IN ('d', 'e', 'c') OR t.typcategory IN ('l', 'm')
               OR n.nspname = 'pg_catalog')
          AND t.typname = $1[cardinality($1)]
          AND CASE WHEN cardinality($1) = 1 THEN n.nspname = ANY (current_schemas(true))
                   ELSE n.nspname = _schema_part($1) END
        ORDER BY array_position(current_schemas(true), n.nspname) LIMIT 1)""",
    )
    yield (
        "to_regtype",
        "text",
        REGTYPE,
        """coalesce(_oid_of_type($1), _type_in(
        CASE WHEN _oid_of_type($1) IS NULL THEN _name_parts(rtrim($1, '[] ')) END,
        $1 LIKE '%[]'))""",
    )
    yield (
        "to_regnamespace",
        "text",
        REGNAMESPACE,
        "(SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = $1)",
    )


def _casts_of_text() -> Iterator[Definition]:
    # A cast finds the same object as `to_reg...`, but raises an error if there is none.
    for reg, result, missing in (
        ("regclass", REGCLASS, "_raised('42P01', 'relation \"' || $1 || '\" does not exist')"),
        ("regtype", REGTYPE, "_raised('42704', 'type \"' || $1 || '\" does not exist')"),
        (
            "regnamespace",
            REGNAMESPACE,
            "_raised('3F000', 'schema \"' || $1 || '\" does not exist')",
        ),
    ):
        schema = "NULL::text" if reg == "regnamespace" else "_missing_schema($1)"
        yield (
            f"_{reg}_of_text",
            "text",
            result,
            f"""CASE WHEN $1 = '-' THEN 0::oid::{reg} WHEN $1 IS NOT NULL THEN coalesce(
            to_{reg}($1),
            _raised('3F000', 'schema "' || {schema} || '" does not exist')::oid::{reg},
            ({missing})::oid::{reg}) END""",
        )
    yield (
        "_missing_schema",
        "text",
        TEXT,
        """CASE WHEN $1 ~ '^[a-z_0-9]+[.][a-z_0-9]+$' AND NOT EXISTS (
            SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname = split_part($1, '.', 1))
        THEN split_part($1, '.', 1) END""",
    )


def _names_of_oids() -> Iterator[Definition]:
    yield (
        "_regclass_name",
        "oid",
        TEXT,
        """coalesce((SELECT CASE WHEN v.visible THEN ''
                       ELSE quote_ident(n.nspname) || '.' END || quote_ident(c.relname)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN mz_internal.pg_relation_visibility v ON v.oid = c.oid
        WHERE c.oid = $1), CASE WHEN $1 = 0 THEN '-' ELSE $1::text END)""",
    )
    yield (
        "format_type",
        "oid int4",
        TEXT,
        """CASE WHEN $1 IS NULL THEN NULL
          WHEN $1 <= 16385 OR $1 IN (16552, 16553) OR $1 BETWEEN 16460 AND 16465
          THEN _format_type($1, $2)
        ELSE coalesce((SELECT CASE WHEN v.visible THEN '' ELSE quote_ident(n.nspname) || '.' END
                       || quote_ident(t.typname) || t.dimensions
        FROM (SELECT t.oid, t.typname, t.typnamespace, t.typtype, t.typcategory, '' AS dimensions
              FROM pg_catalog.pg_type t WHERE t.oid = $1
              UNION ALL
              SELECT t.oid, t.typname, t.typnamespace, t.typtype, t.typcategory, '[]'
              FROM pg_catalog.pg_type t WHERE t.typarray = $1 AND t.oid <> $1) t
        JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
        JOIN mz_internal.pg_relation_visibility v ON v.oid = t.oid
        WHERE $1 <> 0
          AND (t.typtype IN ('d', 'e', 'c') OR t.typcategory IN ('l', 'm'))), '???') END""",
    )
    yield ("_regtype_name", "oid", TEXT, "CASE WHEN $1 = 0 THEN '-' ELSE format_type($1, NULL) END")
    yield (
        "_regnamespace_name",
        "oid",
        TEXT,
        """coalesce((SELECT quote_ident(n.nspname) FROM pg_catalog.pg_namespace n WHERE n.oid = $1),
        CASE WHEN $1 = 0 THEN '-' ELSE $1::text END)""",
    )
