"""Types: the SQL types, and the form of their values in each place.

The table `TYPES` gives for each SQL type its object ids, its category for overload resolution, and
its physical form: the Arrow type of its columns. The same form is stored in Parquet and in log
records, used by kernels, and seen by the bulk engines:

    numeric            decimal128(38, scale), the scale planned for each expression (decision 0002)
    number             struct<value, rest, scale>: numeric without a scale (`numbers.py`)
    text and its kin   utf8; char(n) without its trailing blanks, which are added again at output
    date, timestamp    days, microseconds since 1970; infinities are the extremes of the integer
    timestamptz        microseconds since 1970, UTC
    time               microseconds since midnight
    interval           struct<months: int32, days: int32, micros: int64>, not normalised
    uuid               16 bytes
    json               utf8 as written
    jsonb              utf8 in PostgreSQL's output form (keys sorted and unique)
    enums              utf8, ordered (`enum_labels.py`)
    ranges             bytes, ordered (`ranges.py`)
    timetz             12 bytes, ordered (`zoned_times.py`)
    money              int64: cents
    bit, varbit        bytes, ordered (`bits.py`)
    inet, cidr         bytes, ordered (`network.py`); macaddr: 6 bytes
    arrays             list<element>, one-dimensional
    record, list, map  bytes, ordered (`structured.py`)
    shaped             bytes, ordered (`shaped.py`): arrays of several dimensions, or with bounds
    uint2, uint4       int64
    uint8              8 bytes, ordered (`unsigned.py`)

A *datum* is a single value of physical form as a plain Python value: None, bool, int, float, str,
bytes, or a tuple (of months, days, micros; of an array's elements). A numeric is its decimal text,
one without a scale also with its display scale, `NaN` or an infinity;
date and time kinds are the integers above.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa

from foreshore.ids import GlobalId
from foreshore.interval_fields import interval_typmod, written_fields

Datum = None | bool | int | float | str | bytes | tuple[Any, ...]

# The maximal number of digits of a numeric, and of fractional digits if neither a declaration nor
# the expression determines them.
NUMERIC_DIGITS = 38
UNCONSTRAINED_SCALE = 20
MAX_PLANNED_SCALE = 30


class DefinedType(msgspec.Struct, frozen=True, gc=False):
    """A type of the catalog: its full name when it was looked up, and the labels of an enum.

    `values` are the stored forms (`enum_labels.py`) and `labels` the present labels, in order.
    """

    oid: int
    array_oid: int
    parts: tuple[str, ...]
    values: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


class Member(msgspec.Struct, frozen=True, gc=False):
    """A column of a record, or the items of a list or map."""

    name: str
    type: "SqlType"


class SqlType(msgspec.Struct, frozen=True, gc=False):
    """A type with its modifiers.

    `name` is PostgreSQL's internal name (int4, bpchar, timestamptz), `"array"` for every array.
    `length` is the n of varchar(n) and char(n), the declared precision of numeric, the fractional
    digits p of time kinds; None where not declared. `scale` is a numeric's number of fractional
    digits, always planned, or a number's declared one. `trim` marks a numeric whose trailing zeros
    are insignificant (unconstrained columns, quotients) and not displayed. `fields` are an
    interval's declared ones.
    `defined` is the definition of a type of the catalog, whose name is `enum`, `record`, `list` or
    `map`. `members` are the columns of a record; a list or map has one, its items.
    """

    name: str
    length: int | None = None
    scale: int | None = None
    trim: bool = False
    element: "SqlType | None" = None
    fields: str | None = None
    defined: DefinedType | None = None
    members: tuple[Member, ...] = ()

    def __str__(self) -> str:
        """Return the name as in PostgreSQL's format_type, without modifiers."""
        if self.element is not None:
            return f"{self.element}[]"
        if self.defined is not None:
            return _quoted(self.defined.parts[-1])
        if self.name == "shaped" and self.members:
            return f"{item_of(self)}[]"
        if self.name in CONTAINERS and self.members:
            return _container(self.name, str(item_of(self)))
        return TYPES[self.name].display


_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_$]*\Z")


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.match(name) else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """The properties of a type apart from its modifiers."""

    oid: int
    array_oid: int
    category: str  # PostgreSQL's pg_type.typcategory
    preferred: bool
    length: int  # PostgreSQL's pg_type.typlen
    arrow: pa.DataType | None  # None if it depends on modifiers
    display: str  # as format_type shows it


# The fields of a numeric without a scale: see `foreshore/numbers.py`.
NUMBER_PARTS = pa.struct(
    [
        pa.field("value", pa.decimal128(NUMERIC_DIGITS, UNCONSTRAINED_SCALE)),
        pa.field("rest", pa.binary()),
        pa.field("scale", pa.int16()),
    ]
)
_INTERVAL = pa.struct(
    [pa.field("months", pa.int32()), pa.field("days", pa.int32()), pa.field("micros", pa.int64())]
)

TYPES: dict[str, TypeInfo] = {
    "bool": TypeInfo(16, 1000, "B", True, 1, pa.bool_(), "boolean"),
    "bytea": TypeInfo(17, 1001, "U", False, -1, pa.binary(), "bytea"),
    "char": TypeInfo(18, 1002, "Z", False, 1, pa.string(), '"char"'),
    "name": TypeInfo(19, 1003, "S", False, 64, pa.string(), "name"),
    "int8": TypeInfo(20, 1016, "N", False, 8, pa.int64(), "bigint"),
    "int2": TypeInfo(21, 1005, "N", False, 2, pa.int16(), "smallint"),
    "int2vector": TypeInfo(22, 1006, "A", False, -1, pa.list_(pa.int16()), "int2vector"),
    "int4": TypeInfo(23, 1007, "N", False, 4, pa.int32(), "integer"),
    "regproc": TypeInfo(24, 1008, "N", False, 4, pa.int64(), "regproc"),
    "text": TypeInfo(25, 1009, "S", True, -1, pa.string(), "text"),
    "oid": TypeInfo(26, 1028, "N", True, 4, pa.int64(), "oid"),
    "xid": TypeInfo(28, 1011, "U", False, 4, pa.int64(), "xid"),
    "cid": TypeInfo(29, 1012, "U", False, 4, pa.int64(), "cid"),
    "oidvector": TypeInfo(30, 1013, "A", False, -1, pa.list_(pa.int64()), "oidvector"),
    "json": TypeInfo(114, 199, "U", False, -1, pa.string(), "json"),
    "cidr": TypeInfo(650, 651, "I", False, -1, pa.binary(), "cidr"),
    "macaddr": TypeInfo(829, 1040, "U", False, 6, pa.binary(), "macaddr"),
    "inet": TypeInfo(869, 1041, "I", True, -1, pa.binary(), "inet"),
    "float4": TypeInfo(700, 1021, "N", False, 4, pa.float32(), "real"),
    "float8": TypeInfo(701, 1022, "N", True, 8, pa.float64(), "double precision"),
    "unknown": TypeInfo(705, 0, "X", False, -2, pa.string(), "unknown"),
    "bpchar": TypeInfo(1042, 1014, "S", False, -1, pa.string(), "character"),
    "varchar": TypeInfo(1043, 1015, "S", False, -1, pa.string(), "character varying"),
    "date": TypeInfo(1082, 1182, "D", False, 4, pa.date32(), "date"),
    "time": TypeInfo(1083, 1183, "D", False, 8, pa.time64("us"), "time without time zone"),
    "timestamp": TypeInfo(
        1114, 1115, "D", False, 8, pa.timestamp("us"), "timestamp without time zone"
    ),
    "timestamptz": TypeInfo(
        1184, 1185, "D", True, 8, pa.timestamp("us", "UTC"), "timestamp with time zone"
    ),
    "timetz": TypeInfo(1266, 1270, "D", False, 12, pa.binary(), "time with time zone"),
    "money": TypeInfo(790, 791, "N", False, 8, pa.int64(), "money"),
    "interval": TypeInfo(1186, 1187, "T", True, 16, _INTERVAL, "interval"),
    "numeric": TypeInfo(1700, 1231, "N", False, -1, None, "numeric"),
    "number": TypeInfo(1700, 1231, "N", False, -1, NUMBER_PARTS, "numeric"),
    "regclass": TypeInfo(2205, 2210, "N", False, 4, pa.int64(), "regclass"),
    "regtype": TypeInfo(2206, 2211, "N", False, 4, pa.int64(), "regtype"),
    "record": TypeInfo(2249, 2287, "P", False, -1, pa.binary(), "record"),
    "list": TypeInfo(16384, 0, "l", False, -1, pa.binary(), "list"),
    "shaped": TypeInfo(2277, 0, "A", False, -1, pa.binary(), "anyarray"),
    "map": TypeInfo(16385, 0, "m", False, -1, pa.binary(), "map"),
    "uint2": TypeInfo(16460, 16461, "N", False, 2, pa.int64(), "uint2"),
    "uint4": TypeInfo(16462, 16463, "N", False, 4, pa.int64(), "uint4"),
    "uint8": TypeInfo(16464, 16465, "N", False, 8, pa.binary(), "uint8"),
    "void": TypeInfo(2278, 0, "P", False, 4, pa.string(), "void"),
    "uuid": TypeInfo(2950, 2951, "U", False, 16, pa.binary(), "uuid"),
    "jsonb": TypeInfo(3802, 3807, "U", False, -1, pa.string(), "jsonb"),
    "bit": TypeInfo(1560, 1561, "V", False, -1, pa.binary(), "bit"),
    "varbit": TypeInfo(1562, 1563, "V", True, -1, pa.binary(), "bit varying"),
    "jsonpath": TypeInfo(4072, 4073, "U", False, -1, pa.string(), "jsonpath"),
    **{
        name: TypeInfo(oid, array_oid, "N", False, 4, pa.int64(), name)
        for name, oid, array_oid in (
            ("regprocedure", 2202, 2207),
            ("regoper", 2203, 2208),
            ("regoperator", 2204, 2209),
            ("regconfig", 3734, 3735),
            ("regdictionary", 3769, 3770),
            ("regnamespace", 4089, 4090),
            ("regrole", 4096, 4097),
            ("regcollation", 4191, 4192),
        )
    },
    **{
        name: TypeInfo(oid, array_oid, "R", False, -1, pa.binary(), name)
        for name, oid, array_oid in (
            ("int4range", 3904, 3905),
            ("numrange", 3906, 3907),
            ("tsrange", 3908, 3909),
            ("tstzrange", 3910, 3911),
            ("daterange", 3912, 3913),
            ("int8range", 3926, 3927),
            ("int4multirange", 4451, 6150),
            ("nummultirange", 4532, 6151),
            ("tsmultirange", 4533, 6152),
            ("tstzmultirange", 4534, 6153),
            ("datemultirange", 4535, 6155),
            ("int8multirange", 4536, 6157),
        )
    },
    "mz_timestamp": TypeInfo(16552, 16553, "N", False, 8, pa.int64(), "mz_timestamp"),
    "array": TypeInfo(2277, 0, "A", False, -1, None, "anyarray"),
    "enum": TypeInfo(3500, 0, "E", False, 4, pa.string(), "anyenum"),
}

BOOL = SqlType("bool")
BYTEA = SqlType("bytea")
BIT = SqlType("bit")  # of any length; as people write it, it has length 1
INT2 = SqlType("int2")
INT4 = SqlType("int4")
INT8 = SqlType("int8")
FLOAT4 = SqlType("float4")
FLOAT8 = SqlType("float8")
NUMERIC = SqlType("numeric", None, UNCONSTRAINED_SCALE, True)
NUMBER = SqlType("number")  # `numeric` as people write it, without a scale
TEXT = SqlType("text")
NAME = SqlType("name")
CHAR = SqlType("char")  # the catalog's one-byte "char"; char(n) is bpchar
VARCHAR = SqlType("varchar")
BPCHAR = SqlType("bpchar")
DATE = SqlType("date")
TIME_OF_DAY = SqlType("time")
TIMETZ = SqlType("timetz")
MONEY = SqlType("money")
TIMESTAMP = SqlType("timestamp")
TIMESTAMPTZ = SqlType("timestamptz")
INTERVAL = SqlType("interval")
INET = SqlType("inet")
UUID = SqlType("uuid")
JSON = SqlType("json")
JSONB = SqlType("jsonb")
OID = SqlType("oid")
REGCLASS = SqlType("regclass")
REGTYPE = SqlType("regtype")
REGPROC = SqlType("regproc")
REGNAMESPACE = SqlType("regnamespace")
XID = SqlType("xid")
CID = SqlType("cid")
# The types whose values are oids, shown as the names of what these are of.
REG_NAMES = (
    *("regclass", "regtype", "regproc", "regprocedure", "regoper", "regoperator"),
    *("regnamespace", "regrole", "regcollation", "regconfig", "regdictionary"),
)
INT2VECTOR = SqlType("int2vector")
OIDVECTOR = SqlType("oidvector")
UNKNOWN = SqlType("unknown")
VOID = SqlType("void")
RECORD = SqlType("record")
UINT2 = SqlType("uint2")
UINT4 = SqlType("uint4")
UINT8 = SqlType("uint8")
MZ_TIMESTAMP = SqlType("mz_timestamp")

# PostgreSQL's types that no value has here, by their names: clients compare oids with them.
OTHER_TYPES = {
    "tid": 27, "xml": 142, "point": 600, "lseg": 601,
    "path": 602, "box": 603, "polygon": 604, "line": 628, "circle": 718,
    "refcursor": 1790, "cstring": 2275, "any": 2276,
    "trigger": 2279, "language_handler": 2280, "internal": 2281, "anyelement": 2283,
    "anynonarray": 2776, "pg_lsn": 3220, "tsvector": 3614, "tsquery": 3615,
    "anyrange": 3831, "event_trigger": 3838,
    "anymultirange": 4537, "anycompatiblemultirange": 4538,
    "anycompatible": 5077, "anycompatiblearray": 5078, "anycompatiblenonarray": 5079,
    "anycompatiblerange": 5080, "table_am_handler": 269, "index_am_handler": 325,
    "macaddr8": 774, "fdw_handler": 3115, "tsm_handler": 3310, "gtsvector": 3642,
    "txid_snapshot": 2970, "pg_snapshot": 5038,
}  # fmt: skip

# The catalog's array types by element. Their subscripts start at 0.
VECTORS = {"int2vector": INT2, "oidvector": OID}


def numeric(precision: int, scale: int) -> SqlType:
    """Return numeric(precision, scale) as declared.

    One that no decimal of Arrow has is a number whose digits are checked.
    """
    is_decimal = precision <= NUMERIC_DIGITS and 0 <= scale <= precision
    return SqlType("numeric" if is_decimal else "number", precision, scale)


def numeric_of_scale(scale: int, *, trim: bool = False) -> SqlType:
    """Return an undeclared numeric with `scale` planned fractional digits."""
    return SqlType("numeric", None, scale, trim)


# Types of the category of ranges, ranges and multiranges, whose physical forms sort as they do.
RANGE_TYPES = frozenset(name for name, info in TYPES.items() if info.category == "R")
NETWORK_TYPES = frozenset({"inet", "cidr", "macaddr"})
# Types whose physical forms are bytes that sort as their values do.
CONTAINERS = frozenset({"list", "map"})
STRUCTURED = CONTAINERS | {"record", "shaped"}
BIT_TYPES = frozenset({"bit", "varbit"})
SORTED_BYTES = RANGE_TYPES | NETWORK_TYPES | STRUCTURED | BIT_TYPES | {"uint8", "timetz"}
UNSIGNED = frozenset({"uint2", "uint4", "uint8"})


def is_float(type: SqlType) -> bool:
    """Whether values of the type have a signed zero and NaNs."""
    return type.name in ("float4", "float8")


def array_of(element: SqlType) -> SqlType:
    """Return the type of one-dimensional arrays of `element`."""
    return SqlType("array", element=element)


def list_of(item: SqlType) -> SqlType:
    """Return the type of lists of `item`."""
    return SqlType("list", members=(Member("", item),))


def map_of(item: SqlType) -> SqlType:
    """Return the type of maps from text to `item`."""
    return SqlType("map", members=(Member("", item),))


def shaped_array(element: SqlType) -> SqlType:
    """Return the type of arrays of `element` of any shape."""
    return SqlType("shaped", members=(Member("", element),))


def record_of(names: Sequence[str], types: Sequence[SqlType]) -> SqlType:
    """Return the anonymous type of records with these columns."""
    return SqlType("record", members=tuple(map(Member, names, types)))


def is_composite(type: SqlType) -> bool:
    """Return whether `type` is a composite type of the catalog, or an array of one."""
    of = type.element or type
    return of.name == "record" and of.defined is not None


def item_of(type: SqlType) -> SqlType:
    """Return the type of the items of a list or map."""
    return type.members[0].type


def element_of(type: SqlType) -> SqlType | None:
    """Return the type of the elements of arrays, plain or of any shape; None of other types."""
    return item_of(type) if type.name == "shaped" else type.element


def parts_of(type: SqlType) -> tuple[SqlType, ...]:
    """Return the types of the values within an array or a structured value."""
    if type.element is not None:
        return (type.element,)
    return tuple(member.type for member in type.members)


def _container(name: str, item: str) -> str:
    return f"{item} list" if name == "list" else f"map[text=>{item}]"


def oid_of(type: SqlType) -> int:
    """Return PostgreSQL's object id of the type."""
    if type.name == "shaped":
        return oid_of(array_of(item_of(type)))
    if type.element is not None:
        defined = type.element.defined
        return TYPES[type.element.name].array_oid if defined is None else defined.array_oid
    return TYPES[type.name].oid if type.defined is None else type.defined.oid


@cache
def type_of_oid(oid: int) -> SqlType | None:
    """Return the type with PostgreSQL's object id, without modifiers; None if there is none."""
    for name, info in TYPES.items():
        if info.oid == oid and name not in ("array", "enum", "shaped", *CONTAINERS):
            return NUMBER if name == "numeric" else SqlType(name)
        if oid and info.array_oid == oid:
            return array_of(NUMERIC if name == "numeric" else SqlType(name))
    return None


def category_of(type: SqlType) -> str:
    """Return PostgreSQL's category letter, which guides overload resolution."""
    return TYPES[type.name].category


@cache
def arrow_type(type: SqlType) -> pa.DataType:
    """Return the Arrow type of a column of `type`."""
    if type.element is not None:
        return pa.list_(arrow_type(type.element))
    if type.name == "numeric":
        assert type.scale is not None, type
        return pa.decimal128(NUMERIC_DIGITS, type.scale)
    arrow = TYPES[type.name].arrow
    assert arrow is not None, type
    return arrow


def typmod_of(type: SqlType) -> int:
    """Return PostgreSQL's type modifier as in a row description; -1 if there is none."""
    if type.name == "interval":
        return interval_typmod(type.fields, type.length)
    if type.length is None:
        return -1
    match type.name:
        case "numeric" | "number":
            return ((type.length << 16) | ((type.scale or 0) & 0x7FF)) + 4
        case "varchar" | "bpchar":
            return type.length + 4
        case _:
            return type.length


def format_type(type: SqlType) -> str:
    """Return the name with modifiers, as in PostgreSQL's format_type(oid, typmod)."""
    if type.element is not None:
        return f"{format_type(type.element)}[]"
    if type.defined is not None or type.name in STRUCTURED:
        return str(type)
    display = TYPES[type.name].display
    if type.name == "interval":
        return display + written_fields(type.fields, type.length)
    if type.length is None:
        return display
    match type.name:
        case "numeric" | "number":
            return f"{display}({type.length},{type.scale})"
        case "time" | "timetz" | "timestamp" | "timestamptz":
            word, rest = display.split(" ", 1)
            return f"{word}({type.length}) {rest}"
        case _:
            return f"{display}({type.length})"


def written_type(type: SqlType) -> str:
    """Return the name with modifiers in a form that parses back: `character` alone has length 1."""
    if type.element is not None:
        return f"{written_type(type.element)}[]"
    if type.defined is not None:
        return ".".join(map(_quoted, type.defined.parts))
    if type.name == "shaped":
        return f"{written_type(item_of(type))}[][]"
    if type.name in CONTAINERS:
        return _container(type.name, written_type(item_of(type)))
    if type == SqlType("bit"):
        return '"bit"'  # bit alone has length 1
    return "bpchar" if type == BPCHAR else format_type(type)


def without_modifiers(type: SqlType) -> SqlType:
    """Return `type` with no length, precision or scale declared."""
    if type.element is not None:
        return array_of(without_modifiers(type.element))
    if type.name == "numeric":
        return NUMERIC  # not NUMBER: what is computed of declared numerics stays planned
    members = tuple(Member(m.name, without_modifiers(m.type)) for m in type.members)
    return SqlType(type.name, defined=type.defined, members=members)


class ColumnType(msgspec.Struct, frozen=True, gc=False):
    """The type of a column and whether it may hold NULL."""

    type: SqlType
    nullable: bool = True


ResultOrigin = tuple[int, int]  # the oid of a table or view, and the number of a column, from 1
NO_ORIGIN: ResultOrigin = (0, 0)


class Watermark(msgspec.Struct, frozen=True, gc=False):
    """The watermark of an append-only relation: its greatest time so far, less a delay.

    No row enters whose time, in the column at `column`, is less than the watermark.
    """

    column: int  # of type timestamp or timestamptz
    delay: int  # microseconds, not negative
    # After so many microseconds without a write the clock moves it; None: it waits for rows.
    idle: int | None = None
    marks: GlobalId | None = None  # the relation of one row, the time to which the clock moved it


class RelationDesc(msgspec.Struct, frozen=True, weakref=True):
    """The columns of a named relation, in order; names may repeat only in results of queries."""

    names: tuple[str, ...]
    columns: tuple[ColumnType, ...]
    keys: tuple[tuple[int, ...], ...] = ()  # sets of columns that no two rows agree on
    stored: tuple[str, ...] = ()  # names in a table's shard, if a column was renamed since
    append_only: bool = False  # whether a table never loses rows
    origins: tuple[ResultOrigin, ...] = ()  # of a query's columns, if one has any
    watermark: Watermark | None = None  # of an append-only table or source

    def __post_init__(self) -> None:
        assert len(self.names) == len(self.columns), self
        assert len(self.stored) in (0, len(self.names)), self

    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        return pa.schema(
            [
                pa.field(name, arrow_type(column.type), column.nullable)
                for name, column in zip(self.names, self.columns, strict=True)
            ]
        )

    def stored_schema(self) -> pa.Schema:
        """Return the schema of a table's shard, without NOT NULLs, because these may change."""
        names = self.stored or self.names
        return pa.schema(
            [
                pa.field(name, arrow_type(column.type))
                for name, column in zip(names, self.columns, strict=True)
            ]
        )
