"""Record what PostgreSQL's catalog says of the functions and operators that Foreshore has.

    python -m tests.catalog.record 'host=127.0.0.1 dbname=postgres' 'host=127.0.0.1 port=6875'

The first is any PostgreSQL 15, the second a Foreshore without objects of users. A function is there
if a call of it with NULLs can be prepared, or a type, an operator, a cast or an aggregate refers to
it.
Writes the .tsv files of catalog/builtin, in which an empty field is a NULL.
"""

import sys
from pathlib import Path
from typing import Any

import psycopg

FOLDER = Path(__file__).parent.parent.parent / "catalog" / "builtin"
# Of an error of a prepared call: there is no such function, operator or type.
ABSENT = {"42883", "42704", "0A000", "42601"}

STANDS_FOR = {
    '"any"': "int", "anyelement": "int", "anynonarray": "int", "anycompatible": "int",
    "anycompatiblenonarray": "int", "anyarray": "int[]", "anycompatiblearray": "int[]",
    "anyrange": "int4range", "anycompatiblerange": "int4range",
    "anymultirange": "int4multirange", "anycompatiblemultirange": "int4multirange",
}  # fmt: skip

TYPES = "SELECT oid FROM pg_type WHERE typnamespace = 11"
FUNCTIONS = """
SELECT p.oid, p.proname, p.prokind, p.proisstrict, p.proretset, p.provolatile, p.prorettype,
  p.proargtypes::text, array_to_string(p.proallargtypes, ' '), array_to_string(p.proargmodes, ' '),
  array_to_string(p.proargnames, ' '), p.provariadic, p.pronargdefaults,
  pg_get_expr(p.proargdefaults, 0), p.prorows, p.proparallel, nullif(p.prosrc, p.proname),
  ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) t),
  EXISTS (SELECT FROM pg_type WHERE p.oid IN (typinput, typoutput, typreceive, typsend, typmodin,
    typmodout, typanalyze, typsubscript) AND typnamespace = 11
    AND (oid = ANY (%(types)s) OR typtype = 'p'))
  OR p.proname ~ '^(enum|domain)_(in|out|recv|send)$'
  OR EXISTS (SELECT FROM pg_range WHERE p.oid IN (rngcanonical, rngsubdiff))
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 11 AND p.oid < 16384 ORDER BY p.oid"""
OPERATORS = """
SELECT oid, oprname, oprkind, oprcanmerge, oprcanhash, oprleft, oprright, oprresult, oprcom,
  oprnegate, oprcode::oid, oprrest::oid, oprjoin::oid,
  CASE WHEN oprleft = 0 THEN '' ELSE format_type(oprleft, NULL) END, format_type(oprright, NULL)
FROM pg_operator WHERE oid < 16384 ORDER BY oid"""
CASTS = """
SELECT oid, castsource, casttarget, castfunc, castcontext, castmethod, format_type(castsource, NULL),
  format_type(casttarget, NULL) FROM pg_cast WHERE oid < 16384 ORDER BY oid"""
FAMILIES = """
SELECT oid, opfmethod, opfname, opfnamespace FROM pg_opfamily WHERE opfmethod = 403 AND oid IN
  (SELECT opcfamily FROM pg_opclass WHERE opcintype = ANY (%(types)s)) ORDER BY oid"""
CLASSES = """
SELECT oid, opcmethod, opcname, opcnamespace, opcfamily, opcintype, opcdefault, opckeytype
FROM pg_opclass WHERE opcmethod = 403 AND opcintype = ANY (%(types)s) ORDER BY oid"""
MEMBERS = """
SELECT oid, amopfamily, amoplefttype, amoprighttype, amopstrategy, amoppurpose, amopopr,
  amopmethod, amopsortfamily FROM pg_amop WHERE amopmethod = 403 AND oid < 16384
  AND amoplefttype = ANY (%(types)s) AND amoprighttype = ANY (%(types)s) ORDER BY oid"""
SUPPORT = """
SELECT a.oid, amprocfamily, amproclefttype, amprocrighttype, amprocnum, amproc::oid FROM pg_amproc a
  JOIN pg_opfamily f ON f.oid = amprocfamily WHERE opfmethod = 403 AND a.oid < 16384
  AND amproclefttype = ANY (%(types)s) AND amprocrighttype = ANY (%(types)s) ORDER BY a.oid"""
AGGREGATES = """
SELECT aggfnoid::oid, aggkind, aggnumdirectargs, aggtransfn::oid, aggfinalfn::oid, aggsortop,
  aggtranstype, agginitval FROM pg_aggregate WHERE aggfnoid::oid = ANY (%(functions)s) ORDER BY 1"""

FEATURES = """
SELECT feature_id, feature_name, sub_feature_id, sub_feature_name, is_supported = 'YES'
FROM information_schema.sql_features ORDER BY feature_id COLLATE "C", sub_feature_id COLLATE "C"
"""

DESCRIPTIONS = """
SELECT classoid, objoid, description FROM pg_description WHERE objsubid = 0 AND (
  classoid = 'pg_proc'::regclass AND objoid = ANY (%(functions)s)
  OR classoid = 'pg_operator'::regclass AND objoid = ANY (%(operators)s)
  OR classoid = 'pg_cast'::regclass AND objoid = ANY (%(casts)s)
  OR classoid = 'pg_type'::regclass AND objoid = ANY (%(types)s)
  OR classoid = 'pg_am'::regclass AND objoid IN (2, 403)
  OR classoid = 'pg_language'::regclass AND objoid IN (12, 14)
  OR classoid = 'pg_namespace'::regclass AND objoid IN (11, 2200)
  OR classoid = 'pg_collation'::regclass AND objoid IN (100, 950)) ORDER BY 1, 2"""


def main(postgresql: str, foreshore: str) -> None:
    """Write the files."""
    with psycopg.connect(postgresql) as theirs, psycopg.connect(foreshore, autocommit=True) as ours:
        have = {oid for (oid,) in ours.execute(TYPES)}
        types = {"types": [oid for (oid,) in theirs.execute(TYPES) if oid in have]}

        def is_there(sql: str) -> bool:
            found = ours.pgconn.prepare(b"", sql.encode())
            code = found.error_field(psycopg.pq.DiagnosticField.SQLSTATE)
            return code is None or code.decode() not in ABSENT

        functions, others = [], {}
        for *columns, arguments, of_type in theirs.execute(FUNCTIONS, types):
            name = ".".join(("pg_catalog", quoted(columns[1])))
            call = f"SELECT {name}({', '.join(map(_null, arguments))})"
            if of_type or is_there(call):
                functions.append(columns)
            else:
                others[columns[0]] = columns
        operators = []
        for *columns, left, right in theirs.execute(OPERATORS):
            first = _null(left) if left else ""
            if is_there(f"SELECT {first} OPERATOR(pg_catalog.{columns[1]}) {_null(right)}"):
                operators.append(columns)
        _write("operators", operators)
        casts = [
            columns
            for *columns, source, target in theirs.execute(CASTS)
            if is_there(f"SELECT NULL::{source}::{target}")
        ]
        _write("casts", casts)
        support = theirs.execute(SUPPORT, types).fetchall()
        given = {"functions": [columns[0] for columns in functions]}
        aggregates = theirs.execute(AGGREGATES, given).fetchall()
        referred = {oid for columns in operators for oid in columns[10:13]}
        referred |= {columns[3] for columns in casts} | {columns[5] for columns in support}
        referred |= {oid for columns in aggregates for oid in columns[3:5]}
        functions += [others[oid] for oid in referred if oid in others]
        _write("functions", sorted(functions))
        _write("amprocs", support)
        _write("aggregates", aggregates)
        for name, query in (
            *(("opfamilies", FAMILIES), ("opclasses", CLASSES)),
            ("amops", MEMBERS),
        ):
            _write(name, theirs.execute(query, types).fetchall())
        _write("sql_features", theirs.execute(FEATURES).fetchall())
        listed = {"functions": functions, "operators": operators, "casts": casts}
        oids = {name: [columns[0] for columns in rows] for name, rows in listed.items()}
        _write("descriptions", theirs.execute(DESCRIPTIONS, {**oids, **types}).fetchall())


def _null(type: str) -> str:
    """Return a value of a type, for a pseudo-type that of one that it stands for."""
    return "ROW(1)" if type == "record" else f"NULL::{STANDS_FOR.get(type, type)}"


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return f'"{name}"'


def _write(name: str, rows: list[Any]) -> None:
    lines = ["\t".join(map(_field, row)) + "\n" for row in rows]
    (FOLDER / f"{name}.tsv").write_text("".join(lines))
    print(name, len(lines))


def _field(value: object) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    text = "" if value is None else str(value)
    assert not {"\t", "\n"} & set(text), text
    return text


if __name__ == "__main__":
    main(*sys.argv[1:])
