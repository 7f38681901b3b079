"""The conformance of the server: features of the SQL standard, limits, and the build.

`sql_features.tsv` has the features that PostgreSQL 15 lists, and whether it supports them, as
`tests/catalog/record.py` writes it. Foreshore supports those of them that it does not lack below.
"""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin.functions import recorded
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.settings import SERVER_VERSION

# Features that PostgreSQL supports and Foreshore does not, or in part; XML as a whole.
_LACKS = (
    "B012",  # embedded C
    *("E153", "F311", "F311-04", "F751"),  # views that can be changed, and WITH CHECK OPTION
    *("F385", "F392", "F692", "F711"),  # DROP EXPRESSION, U&"...", other collations, ALTER DOMAIN
    *("S211", "T613"),  # CREATE CAST, TABLESAMPLE
    *("T211", "T212", "T213"),  # triggers
    *("T321-02", "T321-04", "T521", "T523"),  # procedures
    *("T323", "T651", "T653", "T655"),  # SECURITY DEFINER, and functions that change something
)
_PARTS = (
    ("1", "Framework (SQL/Framework)"),
    ("2", "Foundation (SQL/Foundation)"),
    ("3", "Call-Level Interface (SQL/CLI)"),
    ("4", "Persistent Stored Modules (SQL/PSM)"),
    ("9", "Management of External Data (SQL/MED)"),
    ("10", "Object Language Bindings (SQL/OLB)"),
    ("11", "Information and Definition Schema (SQL/Schemata)"),
    ("13", "Routines and Types Using the Java Programming Language (SQL/JRT)"),
    ("14", "XML-Related Specifications (SQL/XML)"),
    ("15", "Multi-Dimensional Arrays (SQL/MDA)"),
)
_NAME_LENGTH = 63
_NAMES = (
    (34, "CATALOG NAME"),
    (30, "COLUMN NAME"),
    (31, "CURSOR NAME"),
    (10005, "IDENTIFIER"),
    (32, "SCHEMA NAME"),
    (35, "TABLE NAME"),
    (107, "USER NAME"),
    (25004, "SESSION USER"),
    (25005, "SYSTEM USER"),
)
# Limits other than of names; 0: there is none, None: it is not known.
_LIMITS: tuple[tuple[int, str, int | None], ...] = (
    (97, "COLUMNS IN GROUP BY", 0),
    (99, "COLUMNS IN ORDER BY", 0),
    (100, "COLUMNS IN SELECT", 0),
    (101, "COLUMNS IN TABLE", 0),
    (1, "CONCURRENT ACTIVITIES", 0),
    (0, "DRIVER CONNECTIONS", None),
    (20000, "STATEMENT OCTETS", 0),
    (20001, "STATEMENT OCTETS DATA", 0),
    (20002, "STATEMENT OCTETS SCHEMA", 0),
    (106, "TABLES IN SELECT", 0),
    (25000, "CURRENT DEFAULT TRANSFORM GROUP LENGTH", None),
    (25001, "CURRENT TRANSFORM GROUP LENGTH", None),
    (25002, "CURRENT PATH LENGTH", 0),
    (25003, "CURRENT ROLE LENGTH", None),
)


def _lacks(id: str, sub_id: str) -> bool:
    full = f"{id}-{sub_id}" if sub_id else id
    return full in _LACKS or id in _LACKS or id.startswith("X")


def _features(_: IntrospectionSnapshot) -> Iterator[Row]:
    for id, name, sub_id, sub_name, supported in recorded("sql_features"):
        has = supported == "t" and not _lacks(id, sub_id)
        yield {
            "feature_id": id,
            "feature_name": name,
            "sub_feature_id": sub_id,
            "sub_feature_name": sub_name,
            "is_supported": "YES" if has else "NO",
            "comments": "",
        }


def _parts(_: IntrospectionSnapshot) -> Iterator[Row]:
    for id, name in _PARTS:
        yield {
            "feature_id": id,
            "feature_name": name,
            "is_supported": "NO",
            "comments": "",
        }


def _sizing(_: IntrospectionSnapshot) -> Iterator[Row]:
    for id, name, limit in _LIMITS:
        yield {"sizing_id": id, "sizing_name": f"MAXIMUM {name}", "supported_value": limit}
    for id, name in _NAMES:
        yield {
            "sizing_id": id,
            "sizing_name": f"MAXIMUM {name} LENGTH",
            "supported_value": _NAME_LENGTH,
            "comments": "Might be less, depending on character set.",
        }


def _implementation(_: IntrospectionSnapshot) -> Iterator[Row]:
    major, minor = SERVER_VERSION.split(".")
    for id, name, value, comment in (
        ("10003", "CATALOG NAME", "Y", None),
        ("10004", "COLLATING SEQUENCE", "ucs_basic", None),
        ("23", "CURSOR COMMIT BEHAVIOR", 1, "close cursors and retain prepared statements"),
        ("2", "DATA SOURCE NAME", "", None),
        ("17", "DBMS NAME", "Foreshore", "Speaks the protocol of PostgreSQL."),
        ("18", "DBMS VERSION", f"{int(major):02}.{int(minor):02}.0000", None),
        ("26", "DEFAULT TRANSACTION ISOLATION", 8, "SERIALIZABLE; user-settable"),
        ("28", "IDENTIFIER CASE", 3, "stored in mixed case - case sensitive"),
        ("85", "NULL COLLATION", 0, "nulls higher than non-nulls"),
        ("13", "SERVER NAME", "", None),
        ("94", "SPECIAL CHARACTERS", "", "all non-ASCII characters allowed"),
        ("46", "TRANSACTION CAPABLE", 2, "both DML and DDL"),
    ):
        yield {
            "implementation_info_id": id,
            "implementation_info_name": name,
            "integer_value": value if isinstance(value, int) else None,
            "character_value": value if isinstance(value, str) else None,
            "comments": comment,
        }


def build_settings(_: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_config: the version, without places of the server's file system."""
    yield {"name": "VERSION", "setting": f"PostgreSQL {SERVER_VERSION}"}


CONFORMANCE: dict[str, Callable[[IntrospectionSnapshot], Iterable[Row]]] = {
    "sql_features": _features,
    "sql_parts": _parts,
    "sql_sizing": _sizing,
    "sql_implementation_info": _implementation,
}
