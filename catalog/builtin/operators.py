"""Operators, casts, aggregates and operator classes of PostgreSQL that Foreshore has.

Their rows are constant, and recorded from PostgreSQL (`tests/catalog/record.py`).
"""

from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain

from foreshore.catalog.builtin.functions import SYSTEM_NAMESPACE, SYSTEM_OWNER, recorded
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.user_functions import aggregate_rows
from foreshore.types import SqlType, oid_of

_COLUMNS = {
    "operators": "oid oprname oprkind oprcanmerge oprcanhash oprleft oprright oprresult oprcom"
    " oprnegate oprcode oprrest oprjoin",
    "casts": "oid castsource casttarget castfunc castcontext castmethod",
    "opfamilies": "oid opfmethod opfname opfnamespace",
    "opclasses": "oid opcmethod opcname opcnamespace opcfamily opcintype opcdefault opckeytype",
    "amops": "oid amopfamily amoplefttype amoprighttype amopstrategy amoppurpose amopopr"
    " amopmethod amopsortfamily",
    "amprocs": "oid amprocfamily amproclefttype amprocrighttype amprocnum amproc",
    "aggregates": "aggfnoid aggkind aggnumdirectargs aggtransfn aggfinalfn aggsortop aggtranstype"
    " agginitval",
}
RECORDED = tuple(_COLUMNS)  # files of rows
_TEXTS = frozenset("oprname oprkind castcontext castmethod opfname opcname amoppurpose aggkind"
                   " agginitval".split())  # fmt: skip
_COMMON: dict[str, Row] = {
    "operators": {"oprnamespace": SYSTEM_NAMESPACE, "oprowner": SYSTEM_OWNER},
    "opfamilies": {"opfowner": SYSTEM_OWNER},
    "opclasses": {"opcowner": SYSTEM_OWNER},
    "aggregates": {"aggfinalmodify": "r", "aggmfinalmodify": "r"},
}


@cache
def constant_rows(name: str) -> tuple[Row, ...]:
    """Return the rows of a file."""
    columns, common = _COLUMNS[name].split(), _COMMON.get(name, {})
    return tuple(
        {**common, **{c: _value(c, field) for c, field in zip(columns, line, strict=True)}}
        for line in recorded(name)
    )


def _value(column: str, field: str) -> object:
    if column in _TEXTS:
        return field if field or column != "agginitval" else None
    return field == "t" if field in ("t", "f") else int(field)


def operator_relations() -> dict[str, Callable[[IntrospectionSnapshot], Iterable[Row]]]:
    """Return the functions for the rows of the relations here, by name."""
    return {
        "pg_operator": lambda _: constant_rows("operators"),
        "pg_cast": lambda _: constant_rows("casts"),
        "pg_opfamily": lambda _: constant_rows("opfamilies"),
        "pg_opclass": lambda _: constant_rows("opclasses"),
        "pg_amop": lambda _: constant_rows("amops"),
        "pg_amproc": lambda _: constant_rows("amprocs"),
        "pg_aggregate": lambda s: chain(constant_rows("aggregates"), aggregate_rows(s)),
    }


_ANYARRAY, _ANYENUM, _RECORD, _ANYRANGE, _ANYMULTIRANGE = 2277, 3500, 2249, 3831, 4537
_TEXT_OID = 25
_FAMILY_TYPES = {"varchar": _TEXT_OID, "char": 18, "cidr": 869, "varbit": 1562, "enum": _ANYENUM}


def operator_class_of(type: SqlType) -> int:
    """Return the oid of the B-tree operator class of a column, 0 if there is none."""
    classes = _default_classes()
    if type.element is not None:
        return classes[_ANYARRAY]
    oid = _FAMILY_TYPES.get(type.name, 0) or (0 if type.defined else oid_of(type))
    if oid in classes:
        return classes[oid]
    if type.name.endswith("multirange"):
        return classes.get(_ANYMULTIRANGE, 0)
    if type.name.endswith("range"):
        return classes.get(_ANYRANGE, 0)
    return classes.get(_RECORD, 0) if type.name == "record" else 0


@cache
def _default_classes() -> dict[int, int]:
    """Return the default classes by the type that they are for."""
    rows = constant_rows("opclasses")
    return {int(row["opcintype"]): int(row["oid"]) for row in rows if row["opcdefault"]}
