"""Functions of PostgreSQL that ask the catalog, as SQL bodies: definitions, visibility, sizes."""

from collections.abc import Iterator

from foreshore.sql.bind.sql_definition import Definition
from foreshore.types import (
    BOOL,
    INT4,
    INT8,
    INTERVAL,
    NAME,
    TEXT,
    TIMESTAMPTZ,
)


def catalog_functions() -> Iterator[Definition]:
    """Yield the definitions."""
    yield from _definitions()
    yield from _visibility()
    yield from _environment()
    yield from _times()
    yield from _sizes()


# The definition of a function of PostgreSQL, from what pg_proc says of it.
_INTERNAL_FUNCTION = """(SELECT CASE WHEN p.prokind = 'a'
        THEN _aggregate_definition(p.proname::text)
        ELSE 'CREATE OR REPLACE FUNCTION pg_catalog.' || quote_ident(p.proname) || '('
        || pg_get_function_arguments(p.oid) || E')\\n RETURNS '
        || pg_get_function_result(p.oid) || E'\\n LANGUAGE internal\\n'
        || coalesce(' ' || nullif(concat_ws(' ',
            CASE p.prokind WHEN 'w' THEN 'WINDOW' END,
            CASE p.provolatile WHEN 'i' THEN 'IMMUTABLE' WHEN 's' THEN 'STABLE' END,
            CASE p.proparallel WHEN 's' THEN 'PARALLEL SAFE'
                WHEN 'r' THEN 'PARALLEL RESTRICTED' END,
            CASE WHEN p.proisstrict THEN 'STRICT' END,
            CASE WHEN p.proretset AND p.prorows <> 1000 THEN 'ROWS ' || p.prorows END), '')
            || E'\\n', '')
        || 'AS $function$' || p.prosrc || E'$function$\\n' END
    FROM pg_catalog.pg_proc p WHERE p.oid = $1 AND p.prolang = 12)"""


def _definitions() -> Iterator[Definition]:
    for more in ("", " bool"):  # before those of an oid, so that a constant is a name
        yield ("pg_get_viewdef", f"text{more}", TEXT, "pg_get_viewdef($1::regclass::oid)")
    for more in ("", " bool", " int4"):
        yield (
            "pg_get_viewdef",
            f"oid{more}",
            TEXT,
            """(SELECT d.definition FROM mz_internal.pg_object_definitions d
            WHERE d.oid = $1 AND d.kind IN ('view', 'materialized view'))""",
        )
    yield (
        "pg_get_functiondef",
        "oid",
        TEXT,
        f"""coalesce((SELECT d.definition FROM mz_internal.pg_object_definitions d
        WHERE d.oid = $1 AND d.kind = 'function'), {_INTERNAL_FUNCTION})""",
    )
    yield (
        "pg_get_indexdef",
        "oid",
        TEXT,
        """(SELECT d.definition FROM mz_internal.pg_object_definitions d
        WHERE d.oid = $1 AND d.kind = 'index')""",
    )
    yield (
        "pg_get_indexdef",
        "oid int4 bool",
        TEXT,
        """CASE WHEN $2 = 0 THEN pg_get_indexdef($1) ELSE coalesce(
        (SELECT k.on_expression FROM mz_catalog.mz_indexes i
         JOIN mz_catalog.mz_index_columns k ON k.index_id = i.id
         WHERE i.oid = $1 AND k.index_position = $2),
        (SELECT quote_ident(a.attname) FROM pg_catalog.pg_attribute a
         JOIN pg_catalog.pg_index x ON x.indexrelid = a.attrelid
         WHERE a.attrelid = $1 AND a.attnum = $2)) END""",
    )
    yield ("pg_get_expr", "text oid", TEXT, "$1")
    yield ("pg_get_expr", "text oid bool", TEXT, "$1")
    yield (
        "pg_get_constraintdef",
        "oid",
        TEXT,
        """(SELECT d.definition FROM mz_internal.pg_object_definitions d
        WHERE d.oid = $1 AND d.kind = 'constraint')""",
    )
    yield (
        "pg_get_constraintdef",
        "oid bool",
        TEXT,
        """(SELECT d.definition FROM mz_internal.pg_object_definitions d
        WHERE d.oid = $1 AND d.kind = CASE WHEN $2 THEN 'pretty ' ELSE '' END || 'constraint')""",
    )
    for name in ("pg_get_triggerdef", "pg_get_ruledef"):
        yield (name, "oid", TEXT, "NULL::text")
        yield (name, "oid bool", TEXT, "NULL::text")
    yield ("pg_get_partkeydef", "oid", TEXT, "NULL::text")
    yield ("pg_get_statisticsobjdef_columns", "oid", TEXT, "NULL::text")
    shown = """coalesce(quote_ident(nullif(p.proargnames[n], '')) || ' ', '')
        || format_type(a.type, NULL)"""
    all_types = (
        "unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY a(type, n)"
    )
    yield (
        "_function_arguments",
        "oid",
        TEXT,
        f"""(SELECT coalesce((SELECT string_agg(
          CASE p.proargmodes[n] WHEN 'o' THEN 'OUT ' WHEN 'b' THEN 'INOUT '
            WHEN 'v' THEN 'VARIADIC ' ELSE '' END
            || {shown}, ', ' ORDER BY n)
          FROM {all_types} WHERE p.proargmodes IS NULL OR p.proargmodes[n] <> 't'), '')
        FROM pg_proc p WHERE p.oid = $1)""",
    )
    yield ("pg_get_function_identity_arguments", "oid", TEXT, "_function_arguments($1)")
    yield (
        "pg_get_function_arguments",
        "oid",
        TEXT,
        """coalesce((SELECT d.definition FROM mz_internal.pg_object_definitions d
            WHERE d.oid = $1 AND d.kind = 'function arguments'), _function_arguments($1))""",
    )
    yield (
        "pg_get_function_result",
        "oid",
        TEXT,
        f"""(SELECT CASE WHEN 't' = ANY(p.proargmodes)
          THEN 'TABLE(' || (SELECT string_agg({shown}, ', ' ORDER BY n)
            FROM {all_types} WHERE p.proargmodes[n] = 't') || ')'
          ELSE CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || format_type(p.prorettype, NULL)
          END FROM pg_proc p WHERE p.oid = $1)""",
    )
    yield (
        "_serial_sequence",
        "regclass text text",
        TEXT,
        """CASE WHEN $1 IS NULL
        THEN _raised('42P01', 'relation "' || $2 || '" does not exist')
        ELSE (SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
              FROM pg_catalog.pg_depend d
              JOIN pg_catalog.pg_class c ON c.oid = d.objid AND c.relkind = 'S'
              JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
              JOIN pg_catalog.pg_attribute a
                ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
              WHERE d.refobjid = $1 AND a.attname = $3 AND d.deptype IN ('a', 'i')
              ORDER BY c.oid LIMIT 1) END""",  # a serial column may have an identity too
    )
    yield ("pg_get_serial_sequence", "text text", TEXT, "_serial_sequence(to_regclass($1), $1, $2)")
    yield (
        "pg_get_userbyid",
        "oid",
        NAME,
        """coalesce((SELECT r.rolname::text FROM pg_catalog.pg_roles r WHERE r.oid = $1),
        'unknown (OID=' || $1::text || ')')""",
    )
    for name, relation in (
        ("obj_description", "pg_description"),
        ("shobj_description", "pg_shdescription"),
    ):
        yield (
            name,
            "oid name",
            TEXT,
            f"""(SELECT min(d.description) FROM pg_catalog.{relation} d
            JOIN pg_catalog.pg_class c ON c.oid = d.classoid
            WHERE d.objoid = $1 AND c.relname = $2 AND c.relnamespace = 11
              {"AND d.objsubid = 0" if name == "obj_description" else ""})""",
        )
    yield (
        "obj_description",
        "oid",
        TEXT,
        """(SELECT min(d.description) FROM pg_catalog.pg_description d
        WHERE d.objoid = $1 AND d.objsubid = 0)""",
    )
    yield (
        "col_description",
        "oid int4",
        TEXT,
        """(SELECT min(d.description) FROM pg_catalog.pg_description d
        WHERE d.objoid = $1 AND d.objsubid = $2 AND d.classoid = 1259)""",  # pg_class
    )


def _visibility() -> Iterator[Definition]:
    yield (
        "pg_table_is_visible",
        "oid",
        BOOL,
        "(SELECT v.visible FROM mz_internal.pg_relation_visibility v WHERE v.oid = $1)",
    )
    for name, relation, namespace in (
        ("pg_type_is_visible", "pg_type", "typnamespace"),
        ("pg_function_is_visible", "pg_proc", "pronamespace"),
        ("pg_collation_is_visible", "pg_collation", "collnamespace"),
        ("pg_operator_is_visible", "pg_operator", "oprnamespace"),
        ("pg_opclass_is_visible", "pg_opclass", "opcnamespace"),
        ("pg_opfamily_is_visible", "pg_opfamily", "opfnamespace"),
        ("pg_conversion_is_visible", "pg_conversion", "connamespace"),
        ("pg_statistics_obj_is_visible", "pg_statistic_ext", "stxnamespace"),
        ("pg_ts_config_is_visible", "pg_ts_config", "cfgnamespace"),
        ("pg_ts_dict_is_visible", "pg_ts_dict", "dictnamespace"),
        ("pg_ts_parser_is_visible", "pg_ts_parser", "prsnamespace"),
        ("pg_ts_template_is_visible", "pg_ts_template", "tmplnamespace"),
    ):
        yield (
            name,
            "oid",
            BOOL,
            f"""(SELECT n.nspname = ANY (current_schemas(true)) FROM pg_catalog.{relation} r
            JOIN pg_catalog.pg_namespace n ON n.oid = r.{namespace} WHERE r.oid = $1)""",
        )


def _environment() -> Iterator[Definition]:
    yield ("pg_is_in_recovery", "", BOOL, "false")
    yield (
        "pg_is_other_temp_schema",
        "oid",
        BOOL,
        """CASE WHEN $1 IS NOT NULL THEN EXISTS (
        SELECT 1 FROM pg_catalog.pg_namespace n
        WHERE n.oid = $1 AND starts_with(n.nspname::text, 'pg_temp_')
          AND n.oid <> pg_my_temp_schema()) END""",
    )
    yield ("pg_relation_is_publishable", "regclass", BOOL, "false")
    yield ("row_security_active", "text", BOOL, "row_security_active($1::regclass::oid)")
    yield (
        "row_security_active",
        "oid",
        BOOL,
        """(SELECT c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
          AND (c.relforcerowsecurity OR NOT pg_has_role(c.relowner, 'USAGE'))
        FROM pg_catalog.pg_class c, pg_catalog.pg_roles r
        WHERE c.oid = $1 AND r.rolname = current_user)""",
    )
    yield (
        "pg_encoding_to_char",
        "int4",
        NAME,
        "CASE $1 WHEN 6 THEN 'UTF8' WHEN 0 THEN 'SQL_ASCII' END",
    )
    yield ("pg_char_to_encoding", "name", INT4, "CASE upper($1) WHEN 'UTF8' THEN 6 ELSE -1 END")
    yield ("getdatabaseencoding", "", NAME, "'UTF8'")
    yield ("pg_client_encoding", "", NAME, "current_setting('client_encoding')")
    yield ("age", "timestamp", INTERVAL, "age(current_date::timestamp, $1)")
    yield ("age", "timestamptz", INTERVAL, "age(current_date::timestamptz, $1)")
    # The transactions of rows are long ended, which PostgreSQL shows as the xid 2 of this age.
    yield (
        "age",
        "xid",
        INT4,
        """CASE WHEN $1::text::int8 < 3 THEN 2147483647
        ELSE ((mz_now()::text::int8 - $1::text::int8) % 2147483647)::int4 END""",
    )
    setting = """(SELECT s.setting FROM mz_internal.pg_shown_settings s
        WHERE lower(s.name) = lower($1))"""
    unknown = """_raised('42704', 'unrecognized configuration parameter "' || $1 || '"')"""
    found = f"CASE WHEN $1 IS NOT NULL THEN coalesce({setting}, {unknown}) END"
    yield ("_setting_called", "text", TEXT, found)
    yield ("_setting_called", "text bool", TEXT, f"CASE WHEN $2 THEN {setting} ELSE {found} END")
    yield ("mz_is_superuser", "", BOOL, "current_setting('is_superuser') = 'on'")
    yield ("txid_current", "", INT8, "mz_now()::int8")
    yield ("pg_tablespace_location", "oid", TEXT, "''")


def _times() -> Iterator[Definition]:
    for moment, later in (
        ("timestamp", "timestamp"),
        ("timestamptz", "timestamptz"),
        ("time", "time"),
        ("timetz", "timetz"),
        ("date", "timestamp"),
    ):
        kinds = ("interval", moment) if moment != "timetz" else (moment,)
        for first in kinds:
            for second in kinds:
                ends = [
                    f"(${place - 1} + ${place})" if type == "interval" else f"${place}"
                    for place, type in ((2, first), (4, second))
                ]
                yield (
                    "overlaps",
                    f"{moment} {first} {moment} {second}",
                    BOOL,
                    f"_overlaps($1::{later}, {ends[0]}::{later}, $3::{later}, {ends[1]}::{later})",
                )
    yield (
        "make_timestamptz",
        "int4 int4 int4 int4 int4 float8 text",
        TIMESTAMPTZ,
        "timezone($7, make_timestamp($1, $2, $3, $4, $5, $6))",
    )


def _sizes() -> Iterator[Definition]:
    # Sizes on durable storage: views have none, and indexes are in the memory of replicas.
    yield (
        "pg_relation_size pg_table_size pg_total_relation_size",
        "regclass",
        INT8,
        """CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = $1)
        THEN coalesce((SELECT max(s.size_bytes) FROM mz_internal.mz_storage_sizes s
                       WHERE s.oid = $1), 0) END""",
    )
    yield (
        "pg_relation_size",
        "regclass text",
        INT8,
        """CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL
        WHEN $2 = 'main' THEN pg_relation_size($1)
        WHEN $2 IN ('fsm', 'vm', 'init') THEN pg_indexes_size($1)
        ELSE _raised('22023', 'invalid fork name')::int8 END""",
    )
    yield (
        "pg_indexes_size",
        "regclass",
        INT8,
        "(SELECT max(0) FROM pg_catalog.pg_class c WHERE c.oid = $1)",
    )
    yield ("pg_database_size", "name", INT8, "pg_database_size(_database_named($1))")
    yield (
        "pg_database_size",
        "oid",
        INT8,
        """CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_database d WHERE d.oid = $1)
        THEN coalesce((SELECT sum(s.size_bytes)::int8 FROM mz_internal.mz_storage_sizes s
                       JOIN mz_catalog.mz_databases d ON d.id = s.database_id
                       WHERE d.oid = $1), 0) END""",
    )
