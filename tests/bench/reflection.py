"""What tools ask the catalog, beside PostgreSQL 15: `python -m tests.bench reflection [NAME ...]`.

Both servers have a schema of 300 tables and some views. The queries of psql, SQLAlchemy and Django
(if it is installed) are those that they send here; those of Prisma's `db pull` and of DBeaver are
written like theirs. Each runs by turns on both servers.
What is printed are the medians of milliseconds and of the turns' ratios, for each query. One that
asks about a table asks about another one each time.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import psycopg
import sqlalchemy

from tests.bench.drivers import Turns
from tests.bench.freshness import serving
from tests.harness import postgres, program

TABLES = 300
TURNS, WARM, TIMES = 5, 3, 3
LIMIT_MS, LIMIT_RATIO = 3.0, 5.0

Query: TypeAlias = tuple[str, Any]  # its text and parameters


def setup() -> Iterator[str]:
    """Yield the statements that make the schema."""
    yield "CREATE TYPE mood AS ENUM ('low', 'high')"
    for n in range(TABLES):
        yield (
            f"CREATE TABLE t{n} (id serial PRIMARY KEY, parent int REFERENCES t{max(n - 1, 0)} (id),"
            " name varchar(40) NOT NULL DEFAULT 'none', amount numeric(12, 2) DEFAULT 0,"
            f" made timestamptz NOT NULL DEFAULT now(), UNIQUE (name, made), CHECK (amount >= 0))"
        )
        yield f"CREATE INDEX t{n}_by_parent ON t{n} (parent)"
        if n % 10 == 0:
            yield f"CREATE VIEW v{n} AS SELECT id, name, amount * 2 AS twice FROM t{n} WHERE amount > 1"
    yield "COMMENT ON TABLE t7 IS 'the seventh'"


# --- the queries -----------------------------------------------------------------------------


def of_psql(command: str) -> Callable[[str, int], list[Query]]:
    """Return what finds the queries of a command of psql, in which N is the number of a table."""

    def queries(url: str, number: int) -> list[Query]:
        said = subprocess.run(
            [program("psql"), "-X", "-E", url, "-c", command.replace("N", str(number))],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        found = re.findall(r"^\*+ QUERY \*+\n(.*?)\n\*{20,}$", said, re.DOTALL | re.MULTILINE)
        assert found, said
        return [(each, None) for each in found]

    return queries


def of_sqlalchemy(ask: Callable[[Any, str], object]) -> Callable[[str, int], list[Query]]:
    """Return what finds the queries of a method of SQLAlchemy's inspector."""

    def queries(url: str, number: int) -> list[Query]:
        engine = sqlalchemy.create_engine(url.replace("postgres://", "postgresql+psycopg://"))
        found: list[Query] = []
        with engine.connect() as connection:
            inspector = sqlalchemy.inspect(connection)
            sqlalchemy.event.listen(
                engine,
                "before_cursor_execute",
                lambda conn, cursor, sql, args, *_: found.append((sql, args)),
            )
            ask(inspector, f"t{number}")
        engine.dispose()
        return found

    return queries


def of_django(url: str, _: int) -> list[Query]:
    """Return the queries of Django's `inspectdb`, as they are sent."""
    django, conf, management, db = (
        importlib.import_module(f"django{each}")
        for each in ("", ".conf", ".core.management", ".db")
    )
    settings, connections = conf.settings, db.connections
    given = psycopg.conninfo.conninfo_to_dict(url)
    at = {
        "HOST": given["host"],
        "PORT": given["port"],
        "USER": given["user"],
        "NAME": given["dbname"],
    }
    if not settings.configured:
        settings.configure(DATABASES={"default": {}}, INSTALLED_APPS=[])
        django.setup()
    connections.databases["db"] = {**connections["default"].settings_dict, **at,
                                   "ENGINE": "django.db.backends.postgresql"}  # fmt: skip
    found: list[Query] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        found.append((context["cursor"].mogrify(sql, params) if params else sql, None))
        return execute(sql, params, many, context)

    with connections["db"].execute_wrapper(note), open("/dev/null", "w") as out:
        management.call_command(
            "inspectdb", "t0", "t1", "v0", database="db", include_views=True, stdout=out
        )
    connections["db"].close()
    return found


def fixed(*queries: str) -> Callable[[str, int], list[Query]]:
    """Return what gives these queries; `:oid` and `:name` are those of a table."""

    def found(url: str, number: int) -> list[Query]:
        with psycopg.connect(url) as connection:
            row = connection.execute(f"SELECT 't{number}'::regclass::oid".encode()).fetchone()
        assert row is not None
        given = {":oid": str(row[0]), ":name": f"'t{number}'"}
        return [(re.sub(":oid|:name", lambda m: given[m[0]], each), None) for each in queries]

    return found


PRISMA = (
    """SELECT tbl.relname AS table_name, namespace.nspname AS namespace,
        (tbl.relhassubclass AND tbl.relkind = 'p') AS is_partition,
        (tbl.relhassubclass AND tbl.relkind = 'r') AS has_subclass,
        tbl.relrowsecurity AS has_row_level_security, reloptions,
        description.description AS description
    FROM pg_class AS tbl
    INNER JOIN pg_namespace AS namespace ON namespace.oid = tbl.relnamespace
    LEFT JOIN pg_description AS description ON description.objoid = tbl.oid AND description.objsubid = 0
    WHERE (tbl.relkind = 'r' OR tbl.relkind = 'p') AND namespace.nspname = ANY (ARRAY['public'])
    ORDER BY namespace, table_name""",
    """SELECT oid.namespace, info.table_name, info.column_name,
        format_type(att.atttypid, att.atttypmod) AS formatted_type,
        info.numeric_precision, info.numeric_scale, info.numeric_precision_radix,
        info.datetime_precision, info.data_type, info.udt_schema AS type_schema_name,
        info.udt_name AS full_data_type, pg_get_expr(attdef.adbin, attdef.adrelid) AS column_default,
        info.is_nullable, info.is_identity, info.character_maximum_length,
        col_description(att.attrelid, ordinal_position) AS description
    FROM information_schema.columns info
    JOIN pg_attribute att ON att.attname = info.column_name
    JOIN (SELECT pg_class.oid, relname, pg_namespace.nspname AS namespace FROM pg_class
          JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
          AND pg_namespace.nspname = ANY (ARRAY['public']) WHERE reltype > 0) AS oid
      ON oid.oid = att.attrelid AND relname = info.table_name AND namespace = info.table_schema
    LEFT OUTER JOIN pg_attrdef attdef ON attdef.adrelid = att.attrelid
      AND attdef.adnum = att.attnum AND table_schema = namespace
    WHERE table_schema = ANY (ARRAY['public']) ORDER BY namespace, table_name, ordinal_position""",
    """SELECT con.oid AS con_id, att2.attname AS child_column, cl.relname AS parent_table,
        att.attname AS parent_column, con.confdeltype, con.confupdtype,
        rel_ns.nspname AS referenced_schema_name, conname AS constraint_name, child, parent,
        table_name, namespace, condeferrable, condeferred
    FROM (SELECT ns.nspname AS namespace, unnest(con1.conkey) AS parent,
            unnest(con1.confkey) AS child, cl.relname AS table_name, ns.nspname AS schema_name,
            generate_subscripts(con1.conkey, 1) AS colidx, con1.oid, con1.confrelid, con1.conrelid,
            con1.conname, con1.confdeltype, con1.confupdtype, con1.condeferrable, con1.condeferred
        FROM pg_class cl JOIN pg_constraint con1 ON con1.conrelid = cl.oid
        JOIN pg_namespace ns ON cl.relnamespace = ns.oid
        WHERE ns.nspname = ANY (ARRAY['public']) AND con1.contype = 'f' ORDER BY colidx) con
    JOIN pg_attribute att ON att.attrelid = con.confrelid AND att.attnum = con.child
    JOIN pg_class cl ON cl.oid = con.confrelid
    JOIN pg_attribute att2 ON att2.attrelid = con.conrelid AND att2.attnum = con.parent
    JOIN pg_class rel_cl ON con.confrelid = rel_cl.oid
    JOIN pg_namespace rel_ns ON rel_cl.relnamespace = rel_ns.oid
    ORDER BY namespace, table_name, constraint_name, con_id, con.colidx""",
    """WITH rawindex AS (
        SELECT indrelid, indexrelid, indisunique, indisprimary, unnest(indkey) AS indkeyid,
            generate_subscripts(indkey, 1) AS indkeyidx, unnest(indclass) AS indclass,
            unnest(indoption) AS indoption
        FROM pg_index WHERE indpred IS NULL AND NOT indisexclusion)
    SELECT schemainfo.nspname AS namespace, indexinfo.relname AS index_name,
        tableinfo.relname AS table_name, columninfo.attname AS column_name,
        rawindex.indisunique AS is_unique, rawindex.indisprimary AS is_primary_key,
        rawindex.indkeyidx AS column_index, opclass.opcname AS opclass,
        opclass.opcdefault AS opcdefault, indexaccess.amname AS index_algo,
        CASE rawindex.indoption & 1 WHEN 1 THEN 'DESC' ELSE 'ASC' END AS column_order,
        CASE rawindex.indoption & 2 WHEN 2 THEN true ELSE false END AS nulls_first,
        pc.condeferrable AS condeferrable, pc.condeferred AS condeferred
    FROM rawindex
    INNER JOIN pg_class AS tableinfo ON tableinfo.oid = rawindex.indrelid
    INNER JOIN pg_class AS indexinfo ON indexinfo.oid = rawindex.indexrelid
    INNER JOIN pg_namespace AS schemainfo ON schemainfo.oid = tableinfo.relnamespace
    LEFT JOIN pg_attribute AS columninfo
        ON columninfo.attrelid = tableinfo.oid AND columninfo.attnum = rawindex.indkeyid
    INNER JOIN pg_am AS indexaccess ON indexaccess.oid = indexinfo.relam
    LEFT JOIN pg_opclass AS opclass ON opclass.oid = rawindex.indclass
    LEFT JOIN pg_constraint pc ON rawindex.indexrelid = pc.conindid AND pc.contype <> 'f'
    WHERE schemainfo.nspname = ANY (ARRAY['public'])
    ORDER BY namespace, table_name, index_name, column_index""",
    """SELECT t.typname AS name, e.enumlabel AS value, n.nspname AS namespace,
        obj_description(t.oid, 'pg_type') AS description
    FROM pg_type t JOIN pg_enum e ON t.oid = e.enumtypid
    JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE n.nspname = ANY (ARRAY['public']) ORDER BY e.enumsortorder""",
    """SELECT views.viewname AS view_name, views.definition AS view_sql, views.schemaname AS namespace,
        obj_description(class.oid, 'pg_class') AS description
    FROM pg_views views INNER JOIN pg_namespace ns ON views.schemaname = ns.nspname
    INNER JOIN pg_class class ON class.relnamespace = ns.oid AND class.relname = views.viewname
    WHERE schemaname = ANY (ARRAY['public'])""",
    """SELECT sequence_name, sequence_schema AS namespace, start_value::bigint, minimum_value::bigint,
        maximum_value::bigint, increment::bigint, cycle_option = 'YES' AS cycle
    FROM information_schema.sequences WHERE sequence_schema = ANY (ARRAY['public'])""",
    """SELECT constr.conname AS constraint_name, constr.contype AS constraint_type,
        pg_get_constraintdef(constr.oid) AS constraint_definition, tbl.relname AS table_name,
        ns.nspname AS namespace
    FROM pg_constraint constr JOIN pg_class tbl ON tbl.oid = constr.conrelid
    JOIN pg_namespace ns ON ns.oid = tbl.relnamespace
    WHERE ns.nspname = ANY (ARRAY['public']) AND contype NOT IN ('p', 'u', 'f')
    ORDER BY namespace, table_name, constr.contype, constraint_name""",
)
DBEAVER_ALL = (
    """SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n
    LEFT OUTER JOIN pg_catalog.pg_description d
    ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
    ORDER BY nspname""",
    """SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr,
        pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
    FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d
    ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind NOT IN ('i', 'I', 'c')""",
    """SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name,
        d.description
    FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
    LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid
    WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c')""",
)
DBEAVER_TABLE = (
    """SELECT c.oid, a.attname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value,
        dsc.description, dep.objid
    FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
    LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
    LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
    LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i'
        AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid
    WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.oid = :oid
    ORDER BY a.attnum""",
    """SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description,
        CASE WHEN c.contype = 'c' THEN substring(pg_get_constraintdef(c.oid), 7) END AS consrc_copy
    FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
    LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
    LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0
        AND d.classoid = 'pg_constraint'::regclass
    WHERE c.conrelid = :oid ORDER BY c.oid""",
    """SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace,
        tc.relname AS tabrelname, dsc.description,
        pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr,
        pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr,
        pg_catalog.pg_relation_size(i.indexrelid) AS index_rel_size,
        pg_catalog.pg_stat_get_numscans(i.indexrelid) AS index_num_scans
    FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
    LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
    WHERE i.indrelid = :oid ORDER BY tabrelname, c.relname""",
    """SELECT DISTINCT dep.deptype, dep.classid, dep.objid, cl.relkind, attr.attname,
        pg_get_expr(ad.adbin, ad.adrelid) AS adefval
    FROM pg_depend dep LEFT JOIN pg_class cl ON dep.objid = cl.oid
    LEFT JOIN pg_attribute attr ON dep.objid = attr.attrelid AND dep.objsubid = attr.attnum
    LEFT JOIN pg_attrdef ad ON dep.objid = ad.oid
    WHERE dep.refobjid = :oid""",
)
APPLICATION = (
    """SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name = :name ORDER BY ordinal_position""",
    """SELECT c.conname, c.conrelid::regclass::text, pg_get_constraintdef(c.oid) FROM pg_constraint c
    JOIN pg_namespace n ON n.oid = c.connamespace WHERE n.nspname = 'public' ORDER BY 2, 1""",
    """SELECT tc.constraint_name, kcu.column_name, ccu.table_name, ccu.column_name
    FROM information_schema.table_constraints tc
    JOIN information_schema.key_column_usage kcu ON tc.constraint_name = kcu.constraint_name
    JOIN information_schema.constraint_column_usage ccu ON ccu.constraint_name = tc.constraint_name
    WHERE tc.constraint_type = 'FOREIGN KEY' AND tc.table_name = :name""",
)

CLIENTS: Mapping[str, Callable[[str, int], list[Query]]] = {
    **{f"psql {command}": of_psql(command.replace("table", "tN")) for command in
       (r"\d table", r"\d+ table", r"\d", r"\dt", r"\di", r"\dv", r"\dn", r"\ds", r"\dT", r"\df")},
    "psql \\d view": of_psql(r"\d v0"),
    "SQLAlchemy names": of_sqlalchemy(lambda i, _: i.get_table_names()),
    "SQLAlchemy columns": of_sqlalchemy(lambda i, table: i.get_columns(table)),
    "SQLAlchemy primary key": of_sqlalchemy(lambda i, table: i.get_pk_constraint(table)),
    "SQLAlchemy foreign keys": of_sqlalchemy(lambda i, table: i.get_foreign_keys(table)),
    "SQLAlchemy indexes": of_sqlalchemy(lambda i, table: i.get_indexes(table)),
    "SQLAlchemy unique": of_sqlalchemy(lambda i, table: i.get_unique_constraints(table)),
    "SQLAlchemy checks": of_sqlalchemy(lambda i, table: i.get_check_constraints(table)),
    "SQLAlchemy has_table": of_sqlalchemy(lambda i, table: i.has_table(table)),
    "SQLAlchemy reflect": of_sqlalchemy(lambda i, _: sqlalchemy.MetaData().reflect(i.bind)),
    "Django inspectdb": of_django,
    "Prisma db pull": fixed(*PRISMA),
    "DBeaver schema": fixed(*DBEAVER_ALL),
    "DBeaver table": fixed(*DBEAVER_TABLE),
    "application": fixed(*APPLICATION),
}  # fmt: skip


# Parts of the names of those that ask about one table.
ABOUT_ONE = (" table", "columns", "key", "indexes", "unique", "checks", "application")


# --- measuring -------------------------------------------------------------------------------


def milliseconds(connection: psycopg.Connection, queries: Sequence[Query]) -> float:
    """Return the median time of queries, of which each asks of another table."""
    times = []
    for sql, args in queries:
        began = time.perf_counter()
        connection.execute(sql.encode(), args).fetchall()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def measure(name: str, ours: str, theirs: str) -> Iterator[tuple[str, Turns]]:
    """Yield the figures of a client's queries, with the name of each."""
    find, count = CLIENTS[name], WARM + TURNS * TIMES
    is_about_one = any(part in name for part in ABOUT_ONE)
    asked = {
        url: [find(url, 10 + n) for n in range(count)] if is_about_one else [find(url, 10)] * count
        for url in (ours, theirs)
    }
    number = min(len(each) for lists in asked.values() for each in lists)
    if any(len(each) != number for lists in asked.values() for each in lists):
        counts = [sorted({len(each) for each in lists}) for lists in asked.values()]
        print(f"| {name}: not as many queries on both, {counts} |")
    with psycopg.connect(ours) as one, psycopg.connect(theirs) as other:
        one.autocommit = other.autocommit = True
        for place in range(number):
            mine, others = ([each[place] for each in asked[url]] for url in (ours, theirs))
            milliseconds(one, mine[:WARM])
            milliseconds(other, others[:WARM])
            turns = Turns([], [])
            for begin in range(WARM, count, TIMES):
                turns.ours.append(milliseconds(one, mine[begin : begin + TIMES]))
                turns.theirs.append(milliseconds(other, others[begin : begin + TIMES]))
            yield f"{name}, {place + 1}", turns


def main(names: Sequence[str]) -> None:
    """Print the figures of the clients of which a name is a part; all, without names."""
    with serving() as server, postgres() as theirs:
        for url in (server.url, theirs):
            with psycopg.connect(url) as connection:
                for statement in setup():
                    connection.execute(statement.encode())
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("ANALYZE")
        print("| queries | Foreshore, ms | PostgreSQL, ms | ratio |\n|---|---|---|---|", flush=True)
        missed = 0
        for name in CLIENTS:
            if names and not any(each in name for each in names):
                continue
            if name.startswith("Django") and importlib.util.find_spec("django") is None:
                continue
            for label, turns in measure(name, server.url, theirs):
                turns.show(label)
                missed += statistics.median(turns.ours) > LIMIT_MS and turns.ratio > LIMIT_RATIO
        print(f"{missed} queries take more than {LIMIT_MS} ms and {LIMIT_RATIO} times as long")


if __name__ == "__main__":
    main(sys.argv[1:])
