"""The casts: which type casts to which, in which context, and by which function.

The table holds PostgreSQL's pg_cast for the supported types. In addition every type has casts to
string types by its output form (on assignment) and from string types by its input form (explicit).
"""

from functools import cache
from typing import Literal as OneOf

from foreshore.expr.functions.function import (
    BY_KEY,
    Resolved,
    member_keys,
    name_of_key,
    natural_numeric,
    type_key,
)
from foreshore.ranges import MULTIRANGES
from foreshore.types import (
    BIT_TYPES,
    NUMBER,
    NUMERIC,
    REG_NAMES,
    STRUCTURED,
    SqlType,
    array_of,
    item_of,
)

_PLANNED_SOURCES = (
    *("numeric", "int2", "int4", "int8", "oid", "uint2", "uint4", "uint8", "money"),
)
Context = OneOf["implicit", "assignment", "explicit"]
_RANK = {"implicit": 0, "assignment": 1, "explicit": 2}

STRINGS = frozenset({"text", "varchar", "bpchar", "name", "char"})
REGS = REG_NAMES

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
_add("assignment", "int2>uint2,uint4,uint8 int4>uint2,uint4,uint8 int8>uint2,uint4,uint8")
_add("assignment", "numeric>uint2,uint4,uint8 float4>uint2,uint4,uint8 float8>uint2,uint4,uint8")
_add("assignment", "uint2>int2 uint4>uint2,int2,int4 uint8>uint2,uint4,int2,int4,int8")
_add("implicit", "uint2>uint4,uint8,int4,int8,numeric,float4,float8")
_add("implicit", "uint4>uint8,int8,numeric,float4,float8 uint8>numeric,float4,float8")
_add("explicit", "uint2>bool uint4>bool uint8>bool")
for _many, _one in MULTIRANGES.items():
    _add("explicit", f"{_one}>{_many}")
_add("implicit", "regproc>regprocedure regprocedure>regproc")
_add("implicit", "regoper>regoperator regoperator>regoper")
_add("implicit", "cidr>inet bit>varbit varbit>bit")
_add("explicit", "int4>bit int8>bit bit>int4,int8")
_add("assignment", "inet>cidr")
_add("implicit", "time>timetz")
_add("assignment", "timestamptz>timetz timetz>time")
_add("assignment", "int4>money int8>money numeric>money money>numeric")
_add("assignment", "json>jsonb jsonb>json")
_add("assignment", "oid>int8,int4 mz_timestamp>int8,numeric,timestamp,timestamptz")
_add(
    "explicit", "bool>int4 int4>bool,char char>int4 jsonb>bool,int2,int4,int8,float4,float8,numeric"
)
# A numeric without a scale casts as one with a scale does.
_PLANNED = [(pair, context) for pair, context in _TABLE.items() if "numeric" in pair]
for (_source, _target), _context in _PLANNED:
    _TABLE[_source.replace("numeric", "number"), _target.replace("numeric", "number")] = _context
_add("implicit", "numeric>number")
_add("assignment", "number>numeric")
for _reg in REGS:
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
    if "unknown" in (source, target) or "void" in (source, target):
        return "implicit" if source == "unknown" and target not in ("void", "record") else None
    if source.endswith("[]") and target.endswith("[]"):
        return cast_context(source[:-2], target[:-2])
    from_array = _context_from_array(source, target)
    if from_array is not None:
        return from_array
    structured = _structured_context(source, target)
    if structured is not None:
        return structured
    if (source, target) in (("int2vector", "int2[]"), ("oidvector", "oid[]")):
        return "implicit"
    if target in STRINGS:
        return "assignment"
    if source in STRINGS:
        return "explicit"
    return None


def _context_from_array(source: str, target: str) -> Context | None:
    """Return the context of a cast between a plain array and one of any shape, or to a list."""
    if source.endswith("[]") and target.startswith(("shaped<", "list")) and "<" in target:
        inner = cast_context(source[:-2], member_keys(target)[0])
        return inner if inner is None or target.startswith("shaped") else "explicit"
    if source.startswith("shaped<") and target.endswith("[]") and not source.endswith("[]"):
        inner = cast_context(member_keys(source)[0], target[:-2])
        return None if inner is None else "assignment"
    return None


def _structured_context(source: str, target: str) -> Context | None:
    """Return the context of a cast between records, lists or maps: the strictest of their parts."""
    if source.endswith("]") or target.endswith("]"):
        return None
    name, wanted = name_of_key(source), name_of_key(target)
    if name not in STRUCTURED or name != wanted:
        return None
    parts, wanted_parts = member_keys(source), member_keys(target)
    if len(parts) != len(wanted_parts):
        return None
    contexts: list[Context] = ["implicit"]
    for part, to in zip(parts, wanted_parts, strict=True):
        context = cast_context(part, to)
        if context is None:
            return None
        contexts.append(context)
    if name == "record" and source.partition("<")[0] != target.partition("<")[0]:
        contexts.append("assignment" if ":" not in source.partition("<")[0] else "explicit")
    return max(contexts, key=lambda context: _RANK[context])


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
    elif target == NUMBER and context == "explicit" and source.name in _PLANNED_SOURCES:
        target = natural_numeric(source)  # the value shows itself, at the cost of a plain decimal
    elif target.element == NUMERIC and context == "explicit" and source.element is not None:
        target = array_of(natural_numeric(source.element))
    if source == target:
        return Resolved("relabel", (source,), target)
    from_key, to_key = source.name, target.name
    if _only_relabels(source, target):
        return Resolved("relabel", (source,), target)
    if from_key == "unknown":
        from_key = "text"
    if source.name in STRUCTURED and source.name == target.name:
        stem = "assign" if (source.name, context) == ("shaped", "assignment") else "cast"
        return Resolved(f"{stem}_{source.name}(any{source.name})", (source,), target)
    if source.element is not None and target.name == "shaped":
        if source.element != item_of(target):
            return None
        return Resolved("cast_to_shaped(anyarray)", (source,), target)
    if source.name == "shaped" and target.element is not None:
        return Resolved("cast_from_shaped(anyshaped)", (source,), array_of(item_of(source)))
    if source.element is not None and target.name == "list":
        return Resolved("cast_array_to_list(anyarray)", (source,), target)
    if source.element is not None and target.element is not None:
        stem = "assign_array" if context == "assignment" else "cast_array"
        return Resolved(f"{stem}(anyarray)", (source,), target)
    from_key = "anyarray" if source.element is not None else from_key
    to_name = "anyarray" if target.element is not None else to_key
    stem = "cast"
    limited = ("varchar", "bpchar", *BIT_TYPES)
    if context != "explicit" and to_key in limited and target.length is not None:
        stem = "assign"
    key = f"{stem}({from_key},{to_name})"
    assert key in BY_KEY, key
    return Resolved(key, (source,), target)


def exact_cast(source: SqlType, target: SqlType) -> Resolved:
    """Return the explicit cast whose result is `target`, or differs from it in modifiers only."""
    found = resolve_cast(source, target, "explicit")
    if target == NUMBER and found is not None and found.result != target:
        found = resolve_cast(source, target, "assignment")  # an explicit one keeps the scale
    assert found is not None, (source, target)
    return found


def _only_relabels(source: SqlType, target: SqlType) -> bool:
    """Return whether the physical form is the same and no check is needed."""
    s, t = type_key(source), type_key(target)
    if s == t and s.startswith("enum:"):
        return True  # the type was altered between two plans
    if source.name in STRUCTURED and source.name == target.name:
        pairs = zip(source.members, target.members, strict=True)
        return all(_same_form(a.type, b.type) for a, b in pairs)
    if s == "numeric" and t == "numeric":
        return source.scale == target.scale and (
            target.length is None or (source.length is not None and source.length <= target.length)
        )
    if s == t == "number":
        return target.length is None
    if s == t and t in ("timestamp", "timestamptz", "time", "timetz", "interval"):
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
    if s in BIT_TYPES and t in BIT_TYPES:
        return target.length is None
    if (s, t) == ("cidr", "inet"):
        return True
    if s in ("text", "unknown") and t == "unknown":
        return True
    kinds = ("oid", *REGS)
    return s in kinds and (t in kinds or t == "int8")


def _same_form(source: SqlType, target: SqlType) -> bool:
    """Return whether a value within a structured one has the same bytes as both types."""
    if source.name == target.name == "numeric":  # which has no trailing zeros there
        return target.length is None and (source.scale or 0) <= (target.scale or 0)
    return source == target or (source.element is None and _only_relabels(source, target))
