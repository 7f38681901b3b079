"""PostgreSQL's catalog, as psql, drivers and tools query it."""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin import foreign_keys, statistics
from foreshore.catalog.builtin.columns import PG_CATALOG
from foreshore.catalog.builtin.dependencies import attrdef, depend, rewrite
from foreshore.catalog.builtin.descriptions import descriptions, relation_descriptions
from foreshore.catalog.builtin.extension import extensions
from foreshore.catalog.builtin.granted import default_acl, role_settings
from foreshore.catalog.builtin.operators import operator_class_of, operator_relations
from foreshore.catalog.builtin.pg_types import (
    ALIGN,
    BY_VALUE,
    COLLATED,
    DEFAULT_COLLATION,
    PG_CATALOG_OID,
    catalog_rows,
    enum_rows,
    range_rows,
    row_type_of,
    storage_of,
)
from foreshore.catalog.builtin.pg_views import VIEWS, authid, groups, shadow
from foreshore.catalog.builtin.policies import POLICY_OID, policies, policy_rows
from foreshore.catalog.builtin.relation import (
    Declaration,
    IntrospectionSnapshot,
    Row,
    live,
    nothing,
)
from foreshore.catalog.builtin.rights import SUPERUSER_OID, memberships, shown, shown_of_column
from foreshore.catalog.builtin.settings import settings_rows
from foreshore.catalog.builtin.user_functions import proc_rows
from foreshore.catalog.builtin.watermarks import has_watermark, watermark_constraints
from foreshore.catalog.item import FIRST_ROLE_ID, Database, Item, Role
from foreshore.constraint import Unique
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Column
from foreshore.expr.split import columns_used
from foreshore.ids import GlobalId
from foreshore.types import (
    TEXT,
    TYPES,
    ColumnType,
    RelationDesc,
    SqlType,
    element_of,
    oid_of,
    typmod_of,
)
from foreshore.zone_rows import abbreviations

PG_CLASS_OID, NAMESPACE_OID, DATABASE_OID, AUTHID_OID = 1259, 2615, 1262, 1260
CONSTRAINT_OID, TYPE_OID, PROC_OID = 2606, 1247, 1255
C_COLLATION = 950
HEAP_AM, BTREE_AM = 2, 403

_IDENTITY = {"always": "a", "by default": "d", "stored": "", None: ""}
_RELKIND = {"table": "r", "view": "v", "materialized view": "m", "index": "i", "sequence": "S"}


def relations() -> Iterator[Declaration]:
    """Yield the relations of the schema."""
    rows: dict[str, Callable[[IntrospectionSnapshot], Iterable[Row]]] = {
        "pg_am": _am,
        "pg_attrdef": attrdef,
        "pg_attribute": _attribute,
        "pg_auth_members": memberships,
        "pg_authid": authid,
        "pg_shadow": shadow,
        "pg_group": groups,
        "pg_class": _class,
        "pg_collation": _collation,
        "pg_constraint": _constraint,
        "pg_database": _database,
        "pg_db_role_setting": role_settings,
        "pg_default_acl": default_acl,
        "pg_description": _description,
        "pg_hba_file_rules": lambda snapshot: snapshot.live("pg_hba_file_rules"),
        "pg_index": _index,
        "pg_language": _language,
        "pg_namespace": _namespace,
        "pg_proc": proc_rows,
        "pg_range": range_rows,
        "pg_enum": enum_rows,
        "pg_depend": depend,
        "pg_rewrite": rewrite,
        "pg_extension": extensions,
        "pg_sequence": _sequence,
        "pg_policy": policy_rows,
        "pg_locks": _locks,
        "pg_settings": settings_rows,
        "pg_shdescription": _shdescription,
        "pg_stat_activity": _stat_activity,
        "pg_stat_user_tables": statistics.tables(system=False),
        "pg_stat_database": statistics.databases,
        "pg_tablespace": _tablespace,
        "pg_timezone_abbrevs": _timezone_abbrevs,
        "pg_timezone_names": lambda snapshot: snapshot.live("pg_timezone_names"),
        "pg_cursors": live("pg_cursors"),
        "pg_prepared_statements": live("pg_prepared_statements"),
        "pg_type": catalog_rows,
    }
    rows |= operator_relations()
    for name, (oid, columns) in PG_CATALOG.items():
        yield Declaration(oid, "pg_catalog", name, columns, rows.get(name, nothing))
    yield from VIEWS


# --- relations ------------------------------------------------------------------------------


def _class(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.items:
        index = item.type == "index"
        yield {
            "oid": item.oid,
            "relname": item.name,
            "relnamespace": snapshot.oid(item.schema),
            "relowner": snapshot.oid(item.owner),
            "reltype": row_type_of(item),
            "relam": {"index": BTREE_AM, "table": HEAP_AM, "materialized view": HEAP_AM}.get(
                item.type, 0
            ),
            "relfilenode": item.oid if item.type != "view" else 0,
            "reltuples": -1.0,
            "relhasindex": bool(snapshot.state.indexes_on(item.id))
            or any(each.has_index for each in item.constraints),
            "relchecks": sum(not each.has_index for each in item.constraints)
            + has_watermark(snapshot, item),
            "relpersistence": "t" if item.temporary else "p",
            "relkind": _RELKIND[item.type],
            "relnatts": len(
                snapshot.index_key_of(item.id) if index else snapshot.desc_of(item.id).names
            ),
            "relhasrules": item.type in ("view", "materialized view"),
            "relrowsecurity": bool(item.row_security),
            "relforcerowsecurity": bool(item.force_row_security),
            "relhastriggers": bool(item.foreign_keys or snapshot.state.references_to(item.id)),
            "relispopulated": True,
            "relreplident": "n" if index else "d",
            "relacl": shown(snapshot, item),
            "reloptions": [*snapshot.options_of(item.id)] or None,
        }
    for item, type in snapshot.composites:
        yield {
            "oid": item.oid,
            "relname": item.name,
            "relnamespace": snapshot.oid(item.schema),
            "relowner": snapshot.oid(item.owner),
            "reltype": item.oid,
            "reltuples": -1.0,
            "relpersistence": "p",
            "relkind": "c",
            "relnatts": len(type.members),
            "relispopulated": True,
            "relreplident": "n",
        }
    for item, named, key in snapshot.keys:
        yield {
            "oid": named.oid,
            "relname": named.name,
            "relnamespace": snapshot.oid(item.schema),
            "relowner": snapshot.oid(item.owner),
            "relam": BTREE_AM,
            "relfilenode": named.oid,
            "reltuples": -1.0,
            "relpersistence": "t" if item.temporary else "p",
            "relkind": "i",
            "relnatts": len(key.columns),
            "relispopulated": True,
            "relreplident": "n",
        }
    namespaces = _namespaces(snapshot)
    for builtin in snapshot.builtins:
        yield {
            "oid": builtin.oid,
            "relname": builtin.name,
            "relnamespace": namespaces[builtin.schema],
            "relowner": SUPERUSER_OID,
            "relam": HEAP_AM if builtin.schema == "pg_catalog" else 0,
            "reltuples": -1.0,
            "relpersistence": "p",
            "relkind": "r" if builtin.schema == "pg_catalog" else "v",
            "relnatts": len(builtin.desc.names),
            "relispopulated": True,
            "relreplident": "n",
        }


def _attribute(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.items:
        if item.type == "index":
            yield from _index_attributes(snapshot, item)
        elif item.type in ("view", "materialized view"):  # whose columns PostgreSQL lets be NULL
            for row in _attributes(item.oid, snapshot.desc_of(item.id), item.id, None):
                yield {**row, "attnotnull": False}
        else:
            attributes = _attributes(
                item.oid,
                snapshot.desc_of(item.id),
                item.id,
                snapshot if item.type == "table" else None,
            )
            for number, row in enumerate(attributes, 1):
                yield {**row, "attacl": shown_of_column(snapshot, item, number)}
    for item, type in snapshot.composites:
        for number, member in enumerate(type.members, 1):
            yield _attribute_of(item.oid, number, member.name, ColumnType(member.type))
    for item, named, key in snapshot.keys:
        desc = snapshot.desc_of(item.id)
        for number, position in enumerate(key.columns, 1):
            column = ColumnType(desc.columns[position].type)
            yield _attribute_of(named.oid, number, desc.names[position], column)
    for builtin in snapshot.builtins:
        yield from _attributes(builtin.oid, builtin.desc, builtin.id, None)


def _attributes(
    oid: int,
    desc: RelationDesc,
    id: GlobalId,
    snapshot: IntrospectionSnapshot | None,
) -> Iterator[Row]:
    """Yield the columns of a relation; `snapshot` is given for tables."""
    domains = {} if snapshot is None else snapshot.column_domains_of(id)
    for i, (name, column) in enumerate(zip(desc.names, desc.columns, strict=True)):
        of_domain = {"atttypid": domains[i], "atttypmod": -1} if i in domains else {}
        yield {
            **_attribute_of(oid, i + 1, name, column),
            **of_domain,
            "atthasdef": snapshot is not None and snapshot.default_of(id, i) is not None,
            "attidentity": _IDENTITY[
                snapshot.generated_of(id, i) if snapshot is not None else None
            ],
            "attgenerated": "s"
            if snapshot is not None and snapshot.generated_of(id, i) == "stored"
            else "",
        }


def _attribute_of(oid: int, number: int, name: str, column: ColumnType) -> Row:
    info, element = TYPES[column.type.name], element_of(column.type)
    length = -1 if element else info.length
    return {
        "attrelid": oid,
        "attname": name,
        "atttypid": oid_of(column.type),
        "attstattarget": -1,
        "attlen": length,
        "attnum": number,
        "attndims": 2 if column.type.name == "shaped" else 1 if element else 0,
        "attcacheoff": -1,
        "atttypmod": typmod_of(element or column.type),
        "attbyval": length in BY_VALUE,
        "attalign": ALIGN.get(length, "i"),
        "attstorage": storage_of(column.type.name, length),
        "attnotnull": not column.nullable,
        "attislocal": True,
        "attcollation": DEFAULT_COLLATION if column.type.name in COLLATED else 0,
    }


def _index_attributes(snapshot: IntrospectionSnapshot, index: Item) -> Iterator[Row]:
    assert index.on is not None, index
    desc = _desc_on(snapshot, index)
    if desc is None:
        return
    planned, names = snapshot.planned[index.id], list[str]()
    for number, written in enumerate(snapshot.written_keys_of(index.id), 1):
        key = planned.key[number - 1]
        name = desc.names[key.index] if isinstance(key, Column) else written.name
        tries = (name, *(f"{name}{n}" for n in range(1, number)))
        names.append(next(each for each in tries if each not in names))
        column = desc.columns[key.index] if isinstance(key, Column) else ColumnType(type_of(key))
        yield _attribute_of(index.oid, number, names[-1], column)


def _desc_on(snapshot: IntrospectionSnapshot, index: Item) -> RelationDesc | None:
    """Return the description of the index's relation, None for a builtin relation."""
    assert index.on is not None, index
    return snapshot.desc_of(index.on) if index.on in snapshot.state.objects else None


def _index(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.items:
        if item.type != "index" or item.on is None or item.on not in snapshot.state.objects:
            continue
        key = snapshot.index_key_of(item.id)
        texts = [text for position, text in key if not position]
        columns = snapshot.desc_of(item.on).columns
        types = [columns[position - 1].type if position else TEXT for position, _ in key]
        yield {
            "indexrelid": item.oid,
            "indrelid": snapshot.oid(item.on),
            "indnatts": len(key),
            "indnkeyatts": len(key),
            "indimmediate": True,
            "indisvalid": True,
            "indisready": True,
            "indislive": True,
            "indkey": [position for position, _ in key],
            "indcollation": _collations(types),
            "indclass": list(map(operator_class_of, types)),
            "indoption": [each.option for each in snapshot.written_keys_of(item.id)],
            "indexprs": ", ".join(texts) or None,
        }

    for item, named, unique in snapshot.keys:
        places = [i + 1 for i in unique.columns]
        columns = snapshot.desc_of(item.id).columns
        types = [columns[i].type for i in unique.columns]
        yield {
            "indexrelid": named.oid,
            "indrelid": item.oid,
            "indnatts": len(places),
            "indnkeyatts": len(places),
            "indisunique": True,
            "indnullsnotdistinct": not unique.nulls_distinct,
            "indisprimary": unique.primary,
            "indimmediate": True,
            "indisvalid": True,
            "indisready": True,
            "indislive": True,
            "indkey": places,
            "indcollation": _collations(types),
            "indclass": list(map(operator_class_of, types)),
            "indoption": [0] * len(places),
        }


def _collations(types: Iterable[SqlType]) -> list[int]:
    """Return the collation of each column of an index, 0 where its type has none."""
    return [DEFAULT_COLLATION if type.name in COLLATED else 0 for type in types]


def _constraint(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    yield from foreign_keys.constraint_rows(snapshot)
    yield from watermark_constraints(snapshot)
    yield from _domain_constraint(snapshot)
    for item, named, constraint in snapshot.constraints:
        common = {
            "oid": named.oid,
            "conname": named.name,
            "connamespace": snapshot.oid(item.schema),
            "convalidated": True,
            "conrelid": item.oid,
            "conislocal": True,
        }
        if isinstance(constraint, Unique):
            yield {
                **common,
                "contype": "p" if constraint.primary else "u",
                "conindid": named.oid,
                "connoinherit": True,
                "conkey": tuple(i + 1 for i in constraint.columns),
            }
        else:
            yield {
                **common,
                "contype": "c",
                "conkey": tuple(i + 1 for i in sorted(columns_used(constraint.condition))),
                "conbin": constraint.text,
            }


def _domain_constraint(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, oid, check in snapshot.all_domain_checks:
        yield {
            "oid": oid,
            "conname": check.name,
            "connamespace": snapshot.oid(item.schema),
            "contype": "c",
            "convalidated": True,
            "contypid": item.oid,
            "conislocal": True,
            "connoinherit": False,
            "conbin": check.text,
        }


def _sequence(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.items:
        if item.type == "sequence":
            found = snapshot.sequence_of(item.id)
            yield {
                "seqrelid": item.oid,
                "seqtypid": oid_of(found.type),
                "seqstart": found.start,
                "seqincrement": found.increment,
                "seqmax": found.maximum,
                "seqmin": found.minimum,
                "seqcache": found.cache,
                "seqcycle": found.cycle,
            }


def _namespaces(snapshot: IntrospectionSnapshot) -> dict[str, int]:
    """Return the oids of the schemas that the session sees, by name."""
    return {schema.name: schema.oid for schema in snapshot.schemas.values()}


def _namespace(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for schema in snapshot.schemas.values():
        yield {
            "oid": schema.oid,
            "nspname": schema.name,
            "nspowner": _owner_oid(snapshot, schema.owner),
            "nspacl": shown(snapshot, schema),
        }


def _owner_oid(snapshot: IntrospectionSnapshot, owner: str) -> int:
    """Return the oid of a schema's owner; the first role, which the system's have, may be new."""
    is_system = owner == FIRST_ROLE_ID and owner not in snapshot.state.objects
    return SUPERUSER_OID if is_system else snapshot.oid(owner)


def _database(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for database in snapshot.state.all(Database):
        yield {
            "oid": database.oid,
            "datname": database.name,
            "datdba": snapshot.oid(database.owner),
            "encoding": 6,  # UTF8
            "datlocprovider": "c",
            "datallowconn": True,
            "datconnlimit": -1,
            "dattablespace": 1663,
            "datcollate": "C",
            "datctype": "C.UTF-8",
            "datacl": shown(snapshot, database),
        }


def _description(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the descriptions of the system's objects, and the comments on the database's."""
    yield from descriptions() if snapshot.is_rest else ()
    yield from relation_descriptions(snapshot.builtins)
    for schema in snapshot.schemas.values() if snapshot.is_rest else ():
        if schema.comment:
            yield {"objoid": schema.oid, "classoid": NAMESPACE_OID, "description": schema.comment}
    for item in snapshot.items:
        of_item = {"objoid": item.oid, "classoid": PG_CLASS_OID}
        if item.comment:
            yield {**of_item, "description": item.comment}
        for position, text in (item.column_comments or {}).items():
            yield {**of_item, "objsubid": position, "description": text}
        constraints = {each.oid for each in item.constraints}
        constraints |= {each.oid for each in item.foreign_keys or ()}
        for oid, text in (item.constraint_comments or {}).items():
            if oid in constraints:
                yield {"objoid": oid, "classoid": CONSTRAINT_OID, "description": text}
    for item in policies(snapshot):
        if item.comment:
            yield {"objoid": item.oid, "classoid": POLICY_OID, "description": item.comment}
    for item in snapshot.types:
        if item.comment:
            yield {"objoid": item.oid, "classoid": TYPE_OID, "description": item.comment}
    for item in snapshot.database_items:
        if item.is_function and item.comment:
            yield {"objoid": item.oid, "classoid": PROC_OID, "description": item.comment}


def _shdescription(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the comments on databases and roles."""
    for type, relation in ((Database, DATABASE_OID), (Role, AUTHID_OID)):
        for each in snapshot.state.all(type):
            if each.comment:
                yield {"objoid": each.oid, "classoid": relation, "description": each.comment}


def _am(_: IntrospectionSnapshot) -> Iterator[Row]:
    yield {"oid": HEAP_AM, "amname": "heap", "amtype": "t"}
    yield {"oid": BTREE_AM, "amname": "btree", "amtype": "i"}


def _collation(_: IntrospectionSnapshot) -> Iterator[Row]:
    for oid, name in ((DEFAULT_COLLATION, "default"), (C_COLLATION, "C")):
        yield {
            "oid": oid,
            "collname": name,
            "collnamespace": PG_CATALOG_OID,
            "collowner": SUPERUSER_OID,
            "collprovider": "d" if name == "default" else "c",
            "collisdeterministic": True,
            "collencoding": -1,
            "collcollate": None if name == "default" else "C",
            "collctype": None if name == "default" else "C",
        }


def _language(_: IntrospectionSnapshot) -> Iterator[Row]:
    for oid, name in ((12, "internal"), (14, "sql"), (15, "python")):
        yield {
            "oid": oid,
            "lanname": name,
            "lanowner": SUPERUSER_OID,
            "lanispl": name == "python",
            "lanpltrusted": name == "sql",
        }


def _tablespace(_: IntrospectionSnapshot) -> Iterator[Row]:
    for oid, name in ((1663, "pg_default"), (1664, "pg_global")):
        yield {"oid": oid, "spcname": name, "spcowner": SUPERUSER_OID}


def _locks(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for each in snapshot.live("pg_locks"):
        database = snapshot.state.database(each["database"])
        oid = database.oid if database else None
        yield {**each, "database": oid, "locktype": "advisory", "fastpath": False}


def _timezone_abbrevs(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for each in abbreviations():
        offset = (0, 0, each.offset * 1_000_000)
        yield {"abbrev": each.abbreviation, "utc_offset": offset, "is_dst": each.is_summer}


def _stat_activity(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    state = snapshot.state
    for each in snapshot.live("pg_stat_activity"):
        database, role = state.database(each["datname"]), state.role(each["usename"])
        yield {
            **each,
            "datid": database.oid if database else None,
            "usesysid": role.oid if role else None,
        }
