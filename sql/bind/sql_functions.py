"""Functions defined as SQL expressions over catalog relations.

`pg_get_viewdef(oid)` looks up a definition; `'t'::regclass` looks up a name. Such a function has an
SQL body in which `$1`, `$2` stand for its arguments, and a call is replaced by its body when it is
bound. Other layers do not know these functions, so calls are planned, optimised and evaluated like
queries of a user.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import resolve_cast
from foreshore.expr.ir import (
    AnySubquery,
    Column,
    Exists,
    Join,
    Map,
    OuterColumn,
    Project,
    Scalar,
    ScalarSubquery,
)
from foreshore.sql import ast
from foreshore.sql.bind.privilege_functions import privilege_functions
from foreshore.sql.bind.server_functions import server_functions
from foreshore.sql.planning import Planning, located
from foreshore.sql.rewrite.scalars import map_scalar, push_down
from foreshore.types import (
    BOOL,
    DATE,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    NAME,
    OID,
    REGCLASS,
    REGNAMESPACE,
    REGPROC,
    REGTYPE,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    ColumnType,
    SqlType,
    array_of,
)

if TYPE_CHECKING:
    from foreshore.sql.bind.expression import ExpressionBinder

MAX_INLINING = 8
SMALL = 4  # in nodes
_TYPES = {
    "oid": OID,
    "text": TEXT,
    "text[]": array_of(TEXT),
    "bool": BOOL,
    "int2": INT2,
    "int4": INT4,
    "int8": INT8,
    "name": NAME,
    "regclass": REGCLASS,
    "regtype": REGTYPE,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
    "date": DATE,
    "time": TIME_OF_DAY,
    "interval": INTERVAL,
    "float8": FLOAT8,
}


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function given by its body, whose parameters are columns `_1`, `_2`, ..."""

    name: str
    parameters: tuple[SqlType, ...]
    result: SqlType
    body: str


_FUNCTIONS: dict[str, list[SqlFunction]] = {}


def define(names: str, parameters: str, result: SqlType, body: str) -> None:
    """Define a function under each of `names`."""
    types = tuple(_TYPES[type] for type in parameters.split())
    for i in range(len(types), 0, -1):
        body = body.replace(f"${i}", f"_{i}")
    for name in names.split():
        _FUNCTIONS.setdefault(name, []).append(SqlFunction(name, types, result, body))


def sql_function_names() -> frozenset[str]:
    """Return the names of all functions whose bodies are SQL."""
    return frozenset(_FUNCTIONS)


def find_sql_function(name: str, types: tuple[SqlType, ...]) -> SqlFunction | None:
    """Return the SQL-bodied function of that name for these arguments, or None."""
    if name not in _FUNCTIONS:
        return None
    fitting = [
        function
        for function in _FUNCTIONS[name]
        if len(function.parameters) == len(types)
        and all(
            source.name == "unknown" or resolve_cast(source, target, "implicit") is not None
            for source, target in zip(types, function.parameters, strict=True)
        )
    ]
    if not fitting:
        return None
    return max(fitting, key=lambda f: sum(a == b for a, b in zip(f.parameters, types, strict=True)))


@cache
def _body(text: str) -> ast.Expression:
    from foreshore.sql.parse.parse import parse_expression

    return parse_expression(text)


def bind_sql_function(
    binder: "ExpressionBinder",
    function: SqlFunction,
    args: tuple[Scalar, ...],
    offsets: tuple[int, ...],
    at: int,
) -> Scalar:
    """Return the function's body over `args`."""
    from foreshore.sql.bind.coerce import coerce

    values: list[Scalar] = []
    for arg, place, type in zip(args, offsets, function.parameters, strict=True):
        value = coerce(binder.planning, arg, type, "implicit", place)
        assert value is not None
        values.append(value)
    with located(at):
        return inline(binder.planning, function, tuple(values))


def inline(planning: Planning, function: SqlFunction, values: tuple[Scalar, ...]) -> Scalar:
    """Return the body of the function with `values`, of its parameters' types, substituted."""
    from foreshore.sql.bind.coerce import cast
    from foreshore.sql.bind.expression import Clause, ExpressionBinder
    from foreshore.sql.bind.scope import Scope, Slot

    if planning.inlining >= MAX_INLINING:
        raise FeatureNotSupported(f"{function.name} is nested too deeply")
    scope = Scope(
        [ColumnType(type) for type in function.parameters],
        visible=[Slot(f"_{i}", i - 1) for i in range(1, len(values) + 1)],
    )
    hidden, planning.common_tables = planning.common_tables, []
    named = len(planning.qualified)
    planning.inlining += 1
    try:
        binder = ExpressionBinder(planning, scope, Clause(function.name))
        result = cast(planning, binder.bind(_body(function.body)), function.result, 0)
    finally:
        planning.inlining -= 1
        planning.common_tables = hidden
        del planning.qualified[named:]

    return _applied(result, values)


def _applied(body: Scalar, values: tuple[Scalar, ...]) -> Scalar:
    """Return `body`, whose only columns are its parameters, with `values` substituted.

    A larger value that occurs several times is computed once, as a column of the single row of
    `(SELECT body FROM (SELECT value))`. So nested calls grow by the sum of their bodies.
    """
    uses = Counter[int]()

    def count(node: Scalar, depth: int) -> Scalar | None:
        index = _parameter(node, depth)
        if index is not None:
            uses[index] += 1
        return None

    map_scalar(body, count)
    shared = [i for i, value in enumerate(values) if uses[i] > 1 and not _is_small(value)]
    place = {index: i for i, index in enumerate(shared)}
    boundary = 1 if shared else 0

    def argument(node: Scalar, depth: int) -> Scalar | None:
        index = _parameter(node, depth)
        if index is None:
            return None
        if index not in place:
            levels = depth + boundary
            return push_down(values[index], levels) if levels else values[index]
        type = type_of(values[index])
        return OuterColumn(depth, place[index], type) if depth else Column(place[index], type)

    applied = map_scalar(body, argument)
    if not shared:
        return applied
    row = Map(Join(()), tuple(push_down(values[i]) for i in shared))
    return ScalarSubquery(Project(Map(row, (applied,)), (len(shared),)), type_of(applied))


def _parameter(node: Scalar, depth: int) -> int | None:
    """Return the parameter for which `node` stands, at `depth` boundaries within the body."""
    if isinstance(node, Column) and depth == 0:
        return node.index
    return node.index if isinstance(node, OuterColumn) and node.level == depth else None


def _is_small(value: Scalar) -> bool:
    """Return whether a value may be repeated: it has few nodes and no query."""
    nodes = 0

    def look(node: Scalar, depth: int) -> Scalar | None:
        nonlocal nodes
        nodes += SMALL + 1 if isinstance(node, Exists | ScalarSubquery | AnySubquery) else 1
        return node if nodes > SMALL else None

    map_scalar(value, look)
    return nodes <= SMALL


# --- names to oids and back ------------------------------------------------------------------

# A name of two parts, or of one (then the first is NULL) that the search path resolves.
define(
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
define(
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
define(
    "_relation_oid",
    "text[]",
    REGCLASS,
    "_relation_in(_schema_part($1), $1[cardinality($1)])",
)
define(
    "to_regclass",
    "text",
    REGCLASS,
    """CASE WHEN $1 ~ '^[0-9]+$' THEN CAST($1::oid AS regclass)
            ELSE _relation_oid(_name_parts($1)) END""",
)
# A type of the catalog by the parts of its name; the second argument asks for that of its arrays.
define(
    "_type_in",
    "text[] bool",
    OID,
    """(SELECT CASE WHEN $2 THEN t.typarray ELSE t.oid END FROM pg_catalog.pg_type t
        JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
        WHERE t.typtype IN ('d', 'e') AND t.typname = $1[cardinality($1)]
          AND CASE WHEN cardinality($1) = 1 THEN n.nspname = ANY (current_schemas(true))
                   ELSE n.nspname = _schema_part($1) END
        ORDER BY array_position(current_schemas(true), n.nspname) LIMIT 1)""",
)
define(
    "to_regtype",
    "text",
    REGTYPE,
    """coalesce(_oid_of_type($1), _type_in(
        CASE WHEN _oid_of_type($1) IS NULL THEN _name_parts(rtrim($1, '[] ')) END,
        $1 LIKE '%[]'))""",
)
define(
    "to_regnamespace",
    "text",
    REGNAMESPACE,
    "(SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = $1)",
)
define(
    "to_regproc",
    "text",
    REGPROC,
    """CASE WHEN $1 ~ '^[0-9]+$' THEN $1::oid ELSE (
        SELECT CASE count(*) WHEN 1 THEN min(p.oid) END FROM pg_catalog.pg_proc p
        WHERE p.proname = regexp_replace($1, '^pg_catalog[.]', '')) END""",
)

# A cast finds the same object as `to_reg...`, but raises an error if there is none.
for _reg, _result, _missing in (
    ("regclass", REGCLASS, "_raised('42P01', 'relation \"' || $1 || '\" does not exist')"),
    ("regtype", REGTYPE, "_raised('42704', 'type \"' || $1 || '\" does not exist')"),
    ("regnamespace", REGNAMESPACE, "_raised('3F000', 'schema \"' || $1 || '\" does not exist')"),
    (
        "regproc",
        REGPROC,
        """CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_proc p
                WHERE p.proname = regexp_replace($1, '^pg_catalog[.]', ''))
            THEN _raised('42725', 'more than one function named "' || $1 || '"')
            ELSE _raised('42883', 'function "' || $1 || '" does not exist') END""",
    ),
):
    _schema = "NULL::text" if _reg == "regnamespace" else "_missing_schema($1)"
    define(
        f"_{_reg}_of_text",
        "text",
        _result,
        f"""CASE WHEN $1 = '-' THEN 0::oid::{_reg} WHEN $1 IS NOT NULL THEN coalesce(
            to_{_reg}($1),
            _raised('3F000', 'schema "' || {_schema} || '" does not exist')::oid::{_reg},
            ({_missing})::oid::{_reg}) END""",
    )
define(
    "_missing_schema",
    "text",
    TEXT,
    """CASE WHEN $1 ~ '^[a-z_0-9]+[.][a-z_0-9]+$' AND NOT EXISTS (
            SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname = split_part($1, '.', 1))
        THEN split_part($1, '.', 1) END""",
)

# --- definitions -----------------------------------------------------------------------------

for _more in ("", " bool", " int4"):
    define(
        "pg_get_viewdef",
        f"oid{_more}",
        TEXT,
        """(SELECT d.definition FROM mz_internal.pg_object_definitions d
            WHERE d.oid = $1 AND d.kind IN ('view', 'materialized view'))""",
    )
define(
    "pg_get_indexdef",
    "oid",
    TEXT,
    """(SELECT d.definition FROM mz_internal.pg_object_definitions d
        WHERE d.oid = $1 AND d.kind = 'index')""",
)
define(
    "pg_get_indexdef",
    "oid int4 bool",
    TEXT,
    """CASE WHEN $2 = 0 THEN pg_get_indexdef($1) ELSE
        (SELECT coalesce(a.attname::text, k.on_expression) FROM pg_catalog.pg_class c
         JOIN mz_catalog.mz_indexes i ON i.oid = c.oid
         JOIN mz_catalog.mz_index_columns k ON k.index_id = i.id
         LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = $2
         WHERE c.oid = $1 AND k.index_position = $2) END""",
)
define("pg_get_expr", "text oid", TEXT, "$1")
define("pg_get_expr", "text oid bool", TEXT, "$1")
define(
    "pg_get_constraintdef",
    "oid",
    TEXT,
    """(SELECT d.definition FROM mz_internal.pg_object_definitions d
        WHERE d.oid = $1 AND d.kind = 'constraint')""",
)
define(
    "pg_get_constraintdef",
    "oid bool",
    TEXT,
    """(SELECT d.definition FROM mz_internal.pg_object_definitions d
        WHERE d.oid = $1 AND d.kind = CASE WHEN $2 THEN 'pretty ' ELSE '' END || 'constraint')""",
)
for _name in ("pg_get_triggerdef", "pg_get_ruledef"):
    define(_name, "oid", TEXT, "NULL::text")
    define(_name, "oid bool", TEXT, "NULL::text")
define("pg_get_partkeydef", "oid", TEXT, "NULL::text")
define("pg_get_statisticsobjdef_columns", "oid", TEXT, "NULL::text")
define("pg_get_function_result pg_get_function_arguments", "oid", TEXT, "NULL::text")
define(
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
define("pg_get_serial_sequence", "text text", TEXT, "_serial_sequence(to_regclass($1), $1, $2)")
define(
    "pg_get_userbyid",
    "oid",
    NAME,
    """coalesce((SELECT r.rolname::text FROM pg_catalog.pg_roles r WHERE r.oid = $1),
        'unknown (OID=' || $1::text || ')')""",
)
for _name, _relation in (
    ("obj_description", "pg_description"),
    ("shobj_description", "pg_shdescription"),
):
    define(
        _name,
        "oid name",
        TEXT,
        f"""(SELECT min(d.description) FROM pg_catalog.{_relation} d
            JOIN pg_catalog.pg_class c ON c.oid = d.classoid
            WHERE d.objoid = $1 AND c.relname = $2 AND c.relnamespace = 11
              {"AND d.objsubid = 0" if _name == "obj_description" else ""})""",
    )
define(
    "obj_description",
    "oid",
    TEXT,
    """(SELECT min(d.description) FROM pg_catalog.pg_description d
        WHERE d.objoid = $1 AND d.objsubid = 0)""",
)
define(
    "col_description",
    "oid int4",
    TEXT,
    """(SELECT min(d.description) FROM pg_catalog.pg_description d
        JOIN pg_catalog.pg_class c ON c.oid = d.classoid
        WHERE d.objoid = $1 AND d.objsubid = $2 AND c.relname = 'pg_class')""",
)

# --- visibility and privileges -----------------------------------------------------------------


define(
    "pg_table_is_visible",
    "oid",
    BOOL,
    "(SELECT v.visible FROM mz_internal.pg_relation_visibility v WHERE v.oid = $1)",
)
for _name, _relation, _namespace in (
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
    define(
        _name,
        "oid",
        BOOL,
        f"""(SELECT n.nspname = ANY (current_schemas(true)) FROM pg_catalog.{_relation} r
            JOIN pg_catalog.pg_namespace n ON n.oid = r.{_namespace} WHERE r.oid = $1)""",
    )
for _definition in privilege_functions():
    define(*_definition)
define("pg_is_in_recovery", "", BOOL, "false")
define(
    "pg_is_other_temp_schema",
    "oid",
    BOOL,
    """CASE WHEN $1 IS NOT NULL THEN EXISTS (
        SELECT 1 FROM pg_catalog.pg_namespace n
        WHERE n.oid = $1 AND starts_with(n.nspname::text, 'pg_temp_')
          AND n.oid <> pg_my_temp_schema()) END""",
)
define("pg_relation_is_publishable", "regclass", BOOL, "false")
define("row_security_active", "oid", BOOL, "false")
define(
    "pg_encoding_to_char", "int4", NAME, "CASE $1 WHEN 6 THEN 'UTF8' WHEN 0 THEN 'SQL_ASCII' END"
)
define("pg_char_to_encoding", "name", INT4, "CASE upper($1) WHEN 'UTF8' THEN 6 ELSE -1 END")
define("getdatabaseencoding pg_client_encoding", "", NAME, "'UTF8'")
define("age", "timestamp", INTERVAL, "age(current_date::timestamp, $1)")
define("age", "timestamptz", INTERVAL, "age(current_date::timestamptz, $1)")
define("mz_is_superuser", "", BOOL, "true")
define("txid_current", "", INT8, "mz_now()::int8")
define("pg_tablespace_location", "oid", TEXT, "''")
for _moment, _later in (
    ("timestamp", "timestamp"),
    ("timestamptz", "timestamptz"),
    ("time", "time"),
    ("date", "timestamp"),
):
    for _first in ("interval", _moment):
        for _second in ("interval", _moment):
            _ends = [
                f"(${place - 1} + ${place})" if type == "interval" else f"${place}"
                for place, type in ((2, _first), (4, _second))
            ]
            define(
                "overlaps",
                f"{_moment} {_first} {_moment} {_second}",
                BOOL,
                f"_overlaps($1::{_later}, {_ends[0]}::{_later},"
                f" $3::{_later}, {_ends[1]}::{_later})",
            )
define(
    "make_timestamptz",
    "int4 int4 int4 int4 int4 float8 text",
    TIMESTAMPTZ,
    "timezone($7, make_timestamp($1, $2, $3, $4, $5, $6))",
)
for _definition in server_functions():
    define(*_definition)

# --- sizes -----------------------------------------------------------------------------------

# Sizes on durable storage: views have none, and indexes are in the memory of replicas.
define(
    "pg_relation_size pg_table_size pg_total_relation_size",
    "regclass",
    INT8,
    """CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = $1)
        THEN coalesce((SELECT max(s.size_bytes) FROM mz_internal.mz_storage_sizes s
                       WHERE s.oid = $1), 0) END""",
)
define(
    "pg_relation_size",
    "regclass text",
    INT8,
    """CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL
        WHEN $2 = 'main' THEN pg_relation_size($1)
        WHEN $2 IN ('fsm', 'vm', 'init') THEN pg_indexes_size($1)
        ELSE _raised('22023', 'invalid fork name')::int8 END""",
)
define(
    "pg_indexes_size",
    "regclass",
    INT8,
    "(SELECT max(0) FROM pg_catalog.pg_class c WHERE c.oid = $1)",
)
define("pg_database_size", "name", INT8, "pg_database_size(_database_named($1))")
define(
    "pg_database_size",
    "oid",
    INT8,
    """CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_database d WHERE d.oid = $1)
        THEN coalesce((SELECT sum(s.size_bytes)::int8 FROM mz_internal.mz_storage_sizes s
                       JOIN mz_catalog.mz_databases d ON d.id = s.database_id
                       WHERE d.oid = $1), 0) END""",
)

define(
    "_regclass_name",
    "oid",
    TEXT,
    """coalesce((SELECT CASE WHEN v.visible THEN ''
                       ELSE quote_ident(n.nspname) || '.' END || quote_ident(c.relname)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN mz_internal.pg_relation_visibility v ON v.oid = c.oid
        WHERE c.oid = $1), CASE WHEN $1 = 0 THEN '-' ELSE $1::text END)""",
)
define(
    "format_type",
    "oid int4",
    TEXT,
    """CASE WHEN $1 < 16384 OR $1 IN (16552, 16553) THEN _format_type($1, $2)
        ELSE coalesce((SELECT CASE WHEN v.visible THEN '' ELSE quote_ident(n.nspname) || '.' END
                       || quote_ident(t.typname) || CASE WHEN t.oid <> $1 THEN '[]' ELSE '' END
        FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
        JOIN mz_internal.pg_relation_visibility v ON v.oid = t.oid
        WHERE $1 IN (t.oid, t.typarray) AND t.typtype IN ('d', 'e')), '???') END""",
)
define("_regtype_name", "oid", TEXT, "CASE WHEN $1 = 0 THEN '-' ELSE format_type($1, NULL) END")
define(
    "_regnamespace_name",
    "oid",
    TEXT,
    """coalesce((SELECT quote_ident(n.nspname) FROM pg_catalog.pg_namespace n WHERE n.oid = $1),
        CASE WHEN $1 = 0 THEN '-' ELSE $1::text END)""",
)
define(
    "_regproc_name",
    "oid",
    TEXT,
    """coalesce((SELECT p.proname::text FROM pg_catalog.pg_proc p WHERE p.oid = $1),
        CASE WHEN $1 = 0 THEN '-' ELSE $1::text END)""",
)


def function_named(name: str) -> SqlFunction:
    """Return the only function of that name."""
    (function,) = _FUNCTIONS[name]
    return function
