"""The casts: which type casts to which, in which context, and by which function.

The table holds PostgreSQL's pg_cast for the supported types. In addition every type has casts to
string types by its output form (on assignment) and from string types by its input form (explicit).
"""

from functools import cache
from typing import Literal as OneOf

from foreshore.expr.functions.function import (
    BY_KEY,
    Resolved,
    natural_numeric,
    type_key,
)
from foreshore.ranges import MULTIRANGES
from foreshore.types import NUMERIC, SqlType, array_of

Context = OneOf["implicit", "assignment", "explicit"]
_RANK = {"implicit": 0, "assignment": 1, "explicit": 2}

STRINGS = frozenset({"text", "varchar", "bpchar", "name", "char"})
_REGS = ("regclass", "regtype", "regproc", "regnamespace")
_INTS = ("int2", "int4", "int8")

_TABLE: dict[tuple[str, str], Context] = {}


def _add(context: Context, pairs: str) -> None:
    """Add casts written as `source>target,target`, separated by blanks."""
    for pair in pairs.split():
        source, targets = pair.split(">")
        for target in targets.split(","):
            _TABLE[source, target] = context


_add("implicit", "int2>int4,int8,float4,float8,numeric,oid int4>int8,float4,float8,numeric,oid")
_add("implicit", "int8>float4,float8,numeric,oid numeric>float4,float8 float4>float8")
_add("implicit", "char>text name>text text>name,bpchar,varchar bpchar>name,text,varchar")
_add("implicit", "varchar>name,text,bpchar date>timestamp,timestamptz time>interval")
_add("implicit", "timestamp>timestamptz text>regclass varchar>regclass")
_add("implicit", "int2>mz_timestamp int4>mz_timestamp int8>mz_timestamp numeric>mz_timestamp")
_add("implicit", "date>mz_timestamp timestamp>mz_timestamp timestamptz>mz_timestamp")
_add("assignment", "int4>int2 int8>int2,int4 numeric>int2,int4,int8 float4>int2,int4,int8,numeric")
_add("assignment", "float8>int2,int4,int8,float4,numeric char>bpchar,varchar name>bpchar,varchar")
_add("assignment", "bool>text,bpchar,varchar text>char bpchar>char varchar>char")
_add("assignment", "timestamp>date,time timestamptz>date,time,timestamp interval>time")
for _many, _one in MULTIRANGES.items():
    _add("explicit", f"{_one}>{_many}")
_add("implicit", "cidr>inet")
_add("assignment", "inet>cidr")
_add("assignment", "json>jsonb jsonb>json")
_add("assignment", "oid>int8,int4 mz_timestamp>int8,numeric,timestamp,timestamptz")
_add(
    "explicit", "bool>int4 int4>bool,char char>int4 jsonb>bool,int2,int4,int8,float4,float8,numeric"
)
for _reg in _REGS:
    _add("implicit", f"{_reg}>oid oid>{_reg} int2>{_reg} int4>{_reg} int8>{_reg}")
    _add("assignment", f"{_reg}>int4,int8")


@cache
def cast_context(source: str, target: str) -> Context | None:
    """Return the context in which `source` casts to `target` (both as in keys), or None."""
    if source == target:
        return "implicit"
    found = _TABLE.get((source, target))
    if found is not None:
        return found
    if "unknown" in (source, target) or "void" in (source, target) or "record" in (source, target):
        return "implicit" if source == "unknown" and target not in ("void", "record") else None
    if source.endswith("[]") and target.endswith("[]"):
        return cast_context(source[:-2], target[:-2])
    if (source, target) in (("int2vector", "int2[]"), ("oidvector", "oid[]")):
        return "implicit"
    if target in STRINGS:
        return "assignment"
    if source in STRINGS:
        return "explicit"
    return None


def resolve_cast(source: SqlType, target: SqlType, context: Context) -> Resolved | None:
    """Return the call that casts `source` to `target`, or None if not allowed in this `context`.

    The result's type is exact and can be narrower than `target`: a cast to numeric without
    precision keeps the scale of its operand. If nothing needs to be done the key is `relabel`,
    which is free.
    """
    allowed = cast_context(type_key(source), type_key(target))
    if allowed is None or _RANK[allowed] > _RANK[context]:
        return None
    if target == NUMERIC and context == "explicit":
        target = natural_numeric(source)
    elif target.element == NUMERIC and context == "explicit" and source.element is not None:
        target = array_of(natural_numeric(source.element))
    if source == target:
        return Resolved("relabel", (source,), target)
    from_key, to_key = (type_key(each).partition(":")[0] for each in (source, target))
    if _only_relabels(source, target):
        return Resolved("relabel", (source,), target)
    if from_key == "unknown":
        from_key = "text"
    if source.element is not None and target.element is not None:
        stem = "assign_array" if context == "assignment" else "cast_array"
        return Resolved(f"{stem}(anyarray)", (source,), target)
    from_key = "anyarray" if source.element is not None else from_key
    to_name = "anyarray" if target.element is not None else to_key
    stem = "cast"
    if context != "explicit" and to_key in ("varchar", "bpchar") and target.length is not None:
        stem = "assign"
    key = f"{stem}({from_key},{to_name})"
    assert key in BY_KEY, key
    return Resolved(key, (source,), target)


def _only_relabels(source: SqlType, target: SqlType) -> bool:
    """Return whether the physical form is the same and no check is needed."""
    s, t = type_key(source), type_key(target)
    if s == t and s.startswith("enum:"):
        return True  # the type was altered between two plans
    if s == "numeric" and t == "numeric":
        return source.scale == target.scale and (
            target.length is None or (source.length is not None and source.length <= target.length)
        )
    if s == t and t in ("timestamp", "timestamptz", "time", "interval"):
        return (target.length, target.fields) in (
            (None, None),
            (source.length, source.fields),
        )
    if t in ("text", "varchar", "bpchar") and s in ("text", "varchar", "unknown", "name", "char"):
        if t == "bpchar":
            return False  # trailing blanks are removed
        return target.length is None or (
            s == t and source.length is not None and source.length <= target.length
        )
    if s == "bpchar" and t == "bpchar":
        return target.length is None or (
            source.length is not None and source.length <= target.length
        )
    if s == "bpchar" and t in ("text", "varchar"):
        return target.length is None
    if (s, t) == ("cidr", "inet"):
        return True
    if s in ("text", "unknown") and t == "unknown":
        return True
    kinds = ("oid", *_REGS)
    return s in kinds and (t in kinds or t == "int8")
