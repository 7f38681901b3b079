"""Find queries that an index answers by lookup: every key column equals a constant.

    Project(Filter(Get v, a = 1 AND b IN (2, $1) AND c > 0))  with an index of v on (a, b)
        keys (1, 2) and (1, $1), residual Project(Filter(Get v, c > 0))

The answer is the residual over the rows that the index holds under these keys. When parameters are
bound, keys may turn out equal or contain NULL: each distinct key is looked up once, and keys with
NULL are not looked up (`=` is not TRUE for them). A parameter of another integer type than the key
is wrapped in a cast. If the cast fails, the key is out of range and finds nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product

from foreshore.expr.ir import (
    Call,
    Column,
    Filter,
    Get,
    Literal,
    Map,
    Or,
    Parameter,
    Project,
    Relation,
    Scalar,
    type_of,
)
from foreshore.sql.optimize.build import project
from foreshore.sql.optimize.scalars import MAX_NODES, conjuncts, size_of, substitute
from foreshore.types import SqlType

MAX_KEYS = 1000

Constant = Literal | Parameter | Call  # a call is a cast between integer types
Key = tuple[Constant, ...]

RANGES = {"int2": 15, "int4": 31, "int8": 63}


@dataclass(frozen=True, slots=True)
class Lookup:
    """The keys to look up, in the order of the index key, and the relation over the rows found."""

    keys: tuple[Key, ...]
    residual: Relation


def literal_lookup(relation: Relation, index_key: Sequence[Scalar]) -> Lookup | None:
    """Return how an index on `index_key` (over columns of the one Get) answers `relation`."""
    found: list[Scalar] = []
    if not index_key or not _gather(relation, found):
        return None
    choices: list[tuple[Constant, ...]] = []
    used: set[Scalar] = set()
    for part in _as_read(relation, index_key):
        for predicate in found:
            values = _alternatives(predicate, part)
            if values is not None:
                choices.append(values)
                used.add(predicate)
                break
        else:
            return None
    total = 1
    for values in choices:
        total *= len(values)
    if total > MAX_KEYS:
        return None
    return Lookup(tuple(product(*choices)), _without(relation, used)[0])


def _as_read(relation: Relation, index_key: Sequence[Scalar]) -> list[Scalar]:
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


def _alternatives(predicate: Scalar, part: Scalar) -> tuple[Constant, ...] | None:
    """Return the constants one of which `part` must equal for `predicate` to be TRUE."""
    match predicate:
        case Or(args=args):
            found: dict[Constant, None] = {}
            for arg in args:
                values = _alternatives(arg, part)
                if values is None:
                    return None
                found.update(dict.fromkeys(values))
            return tuple(found)
        case Call(function="eq", args=(a, value)) if (bare := _strip_widening(value)) is not None:
            constant = _constant(a, bare, part)
        case Call(function="eq", args=(value, a)) if (bare := _strip_widening(value)) is not None:
            constant = _constant(a, bare, part)
        case Column() if predicate == part:  # a boolean column is itself a predicate
            return (Literal(True, predicate.type),)
        case _:
            return None
    return None if constant is None else (constant,)


def _strip_widening(value: Scalar) -> Literal | Parameter | None:
    """Return the literal or parameter below a widening cast."""
    while isinstance(value, Call) and is_widening(value.function):
        (value,) = value.args
    return value if isinstance(value, Literal | Parameter) else None


def _constant(scalar: Scalar, value: Literal | Parameter, part: Scalar) -> Constant | None:
    """Return `value` in the type of `part` if `scalar` is `part` below a widening cast."""
    while scalar != part:
        match scalar:
            case Call(function=function, args=(inner,)) if is_widening(function):
                scalar = inner
            case _:
                return None
    return _of_type(value, type_of(part))


def is_widening(function: str) -> bool:
    """Return whether a cast preserves equality and inequality of values."""
    return function == "relabel" or function in (
        "cast(int2,int4)",
        "cast(int2,int8)",
        "cast(int4,int8)",
    )


def _of_type(value: Literal | Parameter, type: SqlType) -> Constant | None:
    """Return the value of `type` that equals `value`, or None if none is known to exist."""
    if value.type == type:
        return value
    if isinstance(value, Parameter):
        if value.type.name in RANGES and type.name in RANGES:
            return Call(f"cast({value.type.name},{type.name})", (value,), type)
        return None
    if value.value is None:
        return None
    match value.type.name, type.name:
        case (("int2" | "int4" | "int8"), ("int2" | "int4" | "int8")):
            bits = RANGES[type.name]
            fits = -(2**bits) <= value.value < 2**bits
            return Literal(value.value, type) if fits else None
        case "numeric", "numeric":
            return _rescaled(value.value, type)
        case (("text" | "varchar"), ("text" | "varchar" | "name")):
            return Literal(value.value, type)
        case _:
            return None


def _rescaled(text: str, type: SqlType) -> Literal | None:
    assert type.scale is not None, type
    number = Decimal(text)
    scaled = number.scaleb(type.scale)
    if scaled != scaled.to_integral_value() or scaled.adjusted() >= 38:
        return None
    return Literal(f"{number:.{type.scale}f}", type)
