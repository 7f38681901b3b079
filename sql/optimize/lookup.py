"""Find queries that an index answers by look-up: key columns equal constants.

    Project(Filter(Get v, a = 1 AND b IN (2, $1) AND c > 0))  with an index of v on (a, b)
        keys (1, 2) and (1, $1), residual Project(Filter(Get v, c > 0))

The answer is the residual over the rows that the index holds under these keys. The keys come from
`=`, `IN`, `= ANY(array)` and disjunctions of conjunctions of these, over all columns of the index
or, for an index that can look up a prefix of its columns, over the first of them.

When parameters are bound, keys may turn out equal or contain NULL: each distinct key is looked up
once, and keys with NULL are not looked up (`=` is not TRUE for them). A value may be of another
integer type than the key; one out of its range finds nothing. A literal that equals no value of the
key's type becomes NULL. What the statement computes once (`once.py`) is a key as an argument is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

from foreshore.expr.columns import type_of
from foreshore.expr.functions.whole_numbers import BITS, whole_number
from foreshore.expr.ir import (
    And,
    Arguments,
    Call,
    Column,
    Filter,
    Get,
    Literal,
    Map,
    Once,
    Or,
    Parameter,
    Project,
    Relation,
    Scalar,
)
from foreshore.expr.keys import Constant, Elements, Key
from foreshore.sql.optimize.build import project
from foreshore.sql.optimize.scalars import MAX_NODES, conjuncts, size_of, substitute
from foreshore.types import BOOL, REG_NAMES, Datum, SqlType

MAX_KEYS = 1000  # that combine the values of several predicates

RANGES = BITS
TEXTS = ("text", "varchar", "name")
_OIDS = ("oid", *REG_NAMES)
_EXACT_CASTS = frozenset(
    [f"cast({each},numeric)" for each in RANGES] + ["cast(int2,float8)", "cast(int4,float8)"]
)

_WIDE = Context(prec=200)


@dataclass(frozen=True, slots=True)
class Lookup:
    """The keys to look up, in the order of the index key, and the relation over the rows found.

    `keys` may be of only the first columns of the index.
    """

    keys: tuple[Key, ...]
    residual: Relation
    width: int  # columns of the keys


@dataclass(frozen=True, slots=True)
class _Condition:
    """A predicate that is TRUE only if one of `alternatives` holds: parts of a key have values.

    `exact`: and if one of them holds, it is TRUE.
    """

    predicate: Scalar
    alternatives: tuple[dict[int, Constant | Elements], ...]
    exact: bool


def literal_lookup(
    relation: Relation, index_key: Sequence[Scalar], *, prefix: bool = False
) -> Lookup | None:
    """Return how an index on `index_key` (over columns of the one Get) answers `relation`.

    With `prefix` the index can look up any number of its first columns.
    """
    found: list[Scalar] = []
    if not index_key or _gather(relation, found) is None:
        return None
    parts = as_read(relation, index_key)
    conditions = [each for p in found if (each := _condition(p, parts)) is not None]
    keys: list[dict[int, Constant | Elements]] = [{}]
    used: list[_Condition] = []
    width = 0
    while width < len(parts):
        if not all(width in key for key in keys) or not keys:
            chosen = _next(conditions, used, width, len(keys))
            if chosen is None:
                break
            used.append(chosen)
            keys = [{**more, **key} for key in keys for more in chosen.alternatives]
            if not keys:  # nothing can be TRUE
                width = len(parts)
                break
        width += 1
    if not width or (width < len(parts) and not prefix):
        return None
    implied = {each.predicate for each in used if _implied(each, keys, width)}
    tuples = dict.fromkeys(tuple(key[i] for i in range(width)) for key in keys)
    return Lookup(tuple(tuples), _without(relation, implied)[0], width)


def _next(
    conditions: Sequence[_Condition], used: Sequence[_Condition], part: int, keys: int
) -> _Condition | None:
    """Return the condition with the fewest values for a part of the key."""
    found = [
        each
        for each in conditions
        if each not in used
        and all(part in values for values in each.alternatives)
        and (keys == 1 or keys * len(each.alternatives) <= MAX_KEYS)
    ]
    return min(found, key=lambda each: len(each.alternatives)) if found else None


def _implied(
    condition: _Condition, keys: Sequence[dict[int, Constant | Elements]], width: int
) -> bool:
    """Return whether `condition` is TRUE for all rows under `keys`, of which it was made."""
    if not condition.exact:
        return False
    if any(part >= width for values in condition.alternatives for part in values):
        return False
    ways = {tuple(sorted(values)) for values in condition.alternatives}
    if len(ways) != 1:
        return False
    (parts,) = ways
    held = {tuple(values[part] for part in parts) for values in condition.alternatives}
    return all(tuple(key.get(part) for part in parts) in held for key in keys)


def _condition(predicate: Scalar, parts: Sequence[Scalar]) -> _Condition | None:
    """Return which values of `parts` make `predicate` TRUE; None if it may be TRUE for any."""
    match predicate:
        case Literal(value=value) if value is not True:
            return _Condition(predicate, (), True)
        case Or(args=args):
            each = [_condition(arg, parts) for arg in args]
            known = [one for one in each if one is not None]
            if len(known) < len(each):
                return None
            alternatives = [values for one in known for values in one.alternatives]
            return _Condition(predicate, tuple(alternatives), all(one.exact for one in known))
        case Call(function="eq_any", args=(scalar, Call(function="array", args=items))):
            equal = [_equality(Call("eq", (scalar, item), BOOL), parts) for item in items]
            found = [values for one in equal if one is not None for values in one.alternatives]
            return _Condition(predicate, tuple(found), True) if None not in equal else None
        case And(args=args):
            return _conjunction(predicate, [_condition(arg, parts) for arg in args])
        case _:
            return _equality(predicate, parts)


def _conjunction(predicate: Scalar, conditions: Sequence[_Condition | None]) -> _Condition | None:
    known = [each for each in conditions if each is not None]
    if not known:
        return None
    merged: list[dict[int, Constant | Elements]] = [{}]
    exact = len(known) == len(conditions)
    for each in known:
        if len(merged) > 1 and len(merged) * len(each.alternatives) > MAX_KEYS:
            exact = False
            continue
        exact &= each.exact and not any(
            part in before for before in merged for values in each.alternatives for part in values
        )
        merged = [{**more, **values} for values in merged for more in each.alternatives]
    return _Condition(predicate, tuple(merged), exact)


def _equality(predicate: Scalar, parts: Sequence[Scalar]) -> _Condition | None:
    for place, part in enumerate(parts):
        value = _value(predicate, part)
        if value is not None:
            return _Condition(predicate, ({place: value},), True)
    return None


def as_read(relation: Relation, index_key: Sequence[Scalar]) -> list[Scalar]:
    """Return the index key with its columns as the Get in the relation declares them."""
    while isinstance(relation, Project | Filter | Map):
        relation = relation.input
    return [substitute(part, _gather(relation, []) or []) for part in index_key]


def _gather(relation: Relation, found: list[Scalar]) -> list[Scalar] | None:
    """Collect the predicates in `relation` over columns of its Get; return its columns likewise."""
    match relation:
        case Get(columns=columns):
            return [Column(i, c.type, c.nullable) for i, c in enumerate(columns)]
        case Project(input=input, outputs=outputs):
            definitions = _gather(input, found)
            return None if definitions is None else [definitions[i] for i in outputs]
        case Filter(input=input, predicates=predicates):
            definitions = _gather(input, found)
            if definitions is not None:
                found += (substitute(p, definitions) for p in conjuncts(predicates))
            return definitions
        case Map(input=input, scalars=scalars):
            definitions = _gather(input, found)
            if definitions is None:
                return None
            for scalar in scalars:
                definitions.append(substitute(scalar, definitions))
                if size_of(definitions[-1]) > MAX_NODES:
                    return None
            return definitions
        case _:
            return None


def _without(relation: Relation, used: set[Scalar]) -> tuple[Relation, list[Scalar]]:
    """Return `relation` without the predicates `used`, and its columns over those of the Get."""
    match relation:
        case Get(columns=columns):
            return relation, [Column(i, c.type, c.nullable) for i, c in enumerate(columns)]
        case Project(input=input, outputs=outputs):
            below, definitions = _without(input, used)
            return project(below, outputs), [definitions[i] for i in outputs]
        case Filter(input=input, predicates=predicates):
            below, definitions = _without(input, used)
            kept = tuple(p for p in conjuncts(predicates) if substitute(p, definitions) not in used)
            return Filter(below, kept) if kept else below, definitions
        case Map(input=input, scalars=scalars):
            below, definitions = _without(input, used)
            for scalar in scalars:
                definitions.append(substitute(scalar, definitions))
            return Map(below, scalars), definitions
        case _:
            raise AssertionError(f"not here: {relation}")


def _value(predicate: Scalar, part: Scalar) -> Constant | Elements | None:
    """Return what `part` must equal for `predicate` to be TRUE."""
    match predicate:
        case Call(function="eq", args=(a, value)) if (bare := constant_in(value)) is not None:
            return _constant(a, bare, part)
        case Call(function="eq", args=(value, a)) if (bare := constant_in(value)) is not None:
            return _constant(a, bare, part)
        case Call(function="eq_any", args=(a, array)):
            return _elements(a, array, part)
        case Column() if predicate == part:  # a boolean column is itself a predicate
            return Literal(True, predicate.type)
        case _:
            return None


def definitions_of(relation: Relation) -> list[Scalar] | None:
    """Return the columns of Map, Filter and Project over a Get, over the columns of that.

    None if they are too large.
    """
    return _gather(relation, [])


def predicates_of(relation: Relation) -> list[Scalar]:
    """Return the predicates of Map, Filter and Project over a Get, over the columns of that."""
    found: list[Scalar] = []
    return found if _gather(relation, found) is not None else []


def without_widening(scalar: Scalar) -> Scalar:
    """Return what is below casts that preserve equality."""
    while isinstance(scalar, Call) and is_widening(scalar.function):
        (scalar,) = scalar.args
    return scalar


def constant_in(value: Scalar) -> Constant | None:
    """Return what a statement knows before it reads rows, below casts that preserve equality."""
    value = without_widening(value)
    return value if isinstance(value, Constant) else None


def is_part(scalar: Scalar, part: Scalar) -> bool:
    """Return whether `scalar` is `part`, perhaps below casts that preserve equality."""
    while scalar != part:
        match scalar:
            case Call(function=function, args=(inner,)) if (
                is_widening(function) or function in _EXACT_CASTS
            ):
                scalar = inner
            case _:
                return False
    return True


def _constant(scalar: Scalar, value: Constant, part: Scalar) -> Constant | None:
    """Return `value` if `scalar` is `part` below a widening cast; a literal in its type."""
    return _of_type(value, type_of(part)) if is_part(scalar, part) else None


def _elements(scalar: Scalar, array: Scalar, part: Scalar) -> Elements | None:
    """Return the elements of `array` if `scalar` is `part` and they can be compared with it."""
    inner, type = array, type_of(array).element
    while (
        type is not None
        and isinstance(inner, Call)
        and inner.function == "cast_array(anyarray)"
        and (below := type_of(inner.args[0]).element) is not None
        and _keeps_elements(below, type)
    ):
        inner = inner.args[0]
    if (
        type is None
        or not isinstance(inner, Literal | Parameter | Arguments | Once)
        or not is_part(scalar, part)
    ):
        return None
    return Elements(array, type) if is_comparable(type, type_of(part)) else None


def _keeps_elements(below: SqlType, type: SqlType) -> bool:
    """Whether a cast of arrays cannot fail, and its elements are equal if they were before."""
    if below.name in BITS and type.name in BITS:
        return BITS[below.name] <= BITS[type.name]
    return below.name in TEXTS and type.name in TEXTS


def is_widening(function: str) -> bool:
    """Return whether a cast preserves equality and inequality of values."""
    return function == "relabel" or function in (
        "cast(int2,int4)",
        "cast(int2,int8)",
        "cast(int4,int8)",
    )


def is_comparable(value: SqlType, key: SqlType) -> bool:
    """Return whether equal values of two types are equal in memory, up to the width of integers."""
    if value.name in RANGES and key.name in RANGES:
        return True
    if any(value.name in alike and key.name in alike for alike in (TEXTS, _OIDS)):
        return True
    return value == key or (value.name == key.name and key.name not in ("numeric", "array"))


def _of_type(value: Constant, type: SqlType) -> Constant | None:
    """Return what equals `value` among values of `type`; None if they cannot be compared."""
    if isinstance(value, Literal) and value.type != type:
        return _literal_of_type(value, type)
    if value.type.name in ("numeric", "float8") and type.name in RANGES:
        return Once(Call(f"whole({value.type.name},{type.name})", (value,), type), type)
    return value if is_comparable(value.type, type) else None


def _literal_of_type(value: Literal, type: SqlType) -> Literal | None:
    nothing = Literal(None, type)  # equals no value
    if value.value is None:
        return nothing
    match value.type.name, type.name:
        case (("int2" | "int4" | "int8"), ("int2" | "int4" | "int8")):
            bits = RANGES[type.name]
            fits = -(2**bits) <= value.value < 2**bits
            return Literal(value.value, type) if fits else nothing
        case (("numeric" | "float8"), ("int2" | "int4" | "int8")):
            return _whole(value.value, type)
        case "numeric", "numeric":
            return _rescaled(value.value, type)
        case _:
            return Literal(value.value, type) if is_comparable(value.type, type) else None


def _whole(number: Datum, type: SqlType) -> Literal:
    return Literal(whole_number(number, type.name), type)


def _rescaled(text: str, type: SqlType) -> Literal:
    assert type.scale is not None, type
    number = Decimal(text)
    scaled = number.scaleb(type.scale, _WIDE)
    if scaled != scaled.to_integral_value() or scaled.adjusted() >= 38:
        return Literal(None, type)
    return Literal(f"{number:.{type.scale}f}", type)
