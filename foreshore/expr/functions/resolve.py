"""Overload resolution by PostgreSQL's rules, from a name and argument types to one function.

In order: an exact match, where an unknown literal takes the other operand's type; otherwise, among
the candidates to which the arguments cast implicitly, those with most exact matches, then with most
preferred types, then by the categories of unknown literals (string wins), then with all unknowns
typed as the known arguments. Exactly one must remain.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from foreshore.errors import AmbiguousFunction, DatatypeMismatch, UndefinedFunction
from foreshore.expr.functions.function import (
    NO_LITERAL,
    SCALARS,
    Literals,
    Overload,
    Resolved,
    ScalarFunction,
    name_of_key,
    natural_numeric,
    parse_type,
    type_key,
)
from foreshore.types import (
    CONTAINERS,
    RECORD,
    TEXT,
    TYPES,
    VECTORS,
    Member,
    SqlType,
    array_of,
    category_of,
    item_of,
    list_of,
    map_of,
    numeric_of_scale,
    shaped_array,
    without_modifiers,
)

POLYMORPHIC = frozenset(
    "any anyelement anynonarray anyarray anycompatible anycompatiblearray anyenum anyrecord"
    " anyshaped anycompatibleshaped anylist anymap anycompatiblelist anycompatiblemap".split()
)
_ARRAYS = frozenset({"anyarray", "anycompatiblearray"})
# The form of a pattern of plain arrays for arrays of any shape.
_WITH_SHAPE = {
    "anyarray": "anyshaped",
    "anycompatiblearray": "anycompatibleshaped",
    "text[]": "shaped<text>",
}
# Patterns of types with items, and how a type is made of one.
_CONTAINERS: dict[str, Callable[[SqlType], SqlType]] = {
    **dict.fromkeys(_ARRAYS, array_of),
    **dict.fromkeys(("anylist", "anycompatiblelist"), list_of),
    **dict.fromkeys(("anymap", "anycompatiblemap"), map_of),
    **dict.fromkeys(("anyshaped", "anycompatibleshaped"), shaped_array),
}
_STRUCTURED_PATTERNS = {
    "anyrecord": "record",
    **dict.fromkeys(("anyshaped", "anycompatibleshaped"), "shaped"),
    "anylist": "list",
    "anycompatiblelist": "list",
    "anymap": "map",
    "anycompatiblemap": "map",
}

ImplicitCast = Callable[[SqlType, SqlType], bool]


def select_common_type(types: Sequence[SqlType]) -> SqlType | None:
    """Return the common type of operands of CASE, COALESCE, UNION, VALUES and arrays.

    This is PostgreSQL's select_common_type, with the scales of numerics combined. Returns None if
    there is no common type, and text if all are unknown.
    """
    known = [t for t in types if t.name != "unknown"]
    if not known:
        return TEXT
    chosen = known[0]
    for candidate in known[1:]:
        if type_key(candidate) == type_key(chosen):
            continue
        if category_of(candidate) != category_of(chosen):
            return None
        if (
            not _preferred(type_key(chosen))
            and implicitly_castable(chosen, candidate)
            and not implicitly_castable(candidate, chosen)
        ):
            chosen = candidate
    if any(not implicitly_castable(t, chosen) for t in known):
        return None
    same = [t for t in known if type_key(t) == type_key(chosen)]
    if chosen.name == "numeric":
        return common_numeric(known)
    if chosen.element is not None and chosen.element.name == "numeric":
        return array_of(common_numeric([t.element for t in same if t.element is not None]))
    if chosen.members and len(same) == len(known):
        return _common_members(same)
    return chosen if all(t == chosen for t in known) else without_modifiers(chosen)


def _common_members(types: Sequence[SqlType]) -> SqlType:
    """Return the type that holds structured values of types that differ in modifiers only."""
    if all(t == types[0] for t in types):
        return types[0]
    members = []
    for place, member in enumerate(types[0].members):
        common = select_common_type([t.members[place].type for t in types])
        assert common is not None, types
        names = {t.members[place].name for t in types}
        members.append(Member(member.name if len(names) == 1 else f"f{place + 1}", common))
    return SqlType(types[0].name, defined=types[0].defined, members=tuple(members))


def common_numeric(types: Sequence[SqlType]) -> SqlType:
    """Return a numeric that holds the fractional digits of all `types`."""
    numerics = [natural_numeric(t) for t in types if t.name != "unknown"]
    if all(t == numerics[0] for t in numerics):
        return numerics[0]
    return numeric_of_scale(max(t.scale or 0 for t in numerics), trim=any(t.trim for t in numerics))


def implicitly_castable(source: SqlType, target: SqlType) -> bool:
    """Return whether `source` casts to `target` implicitly."""
    if source.name == "unknown" or type_key(source) == type_key(target):
        return True
    from foreshore.expr.functions.casts import cast_context

    return cast_context(type_key(source), type_key(target)) == "implicit"


@cache
def _castable(source: str, pattern: str) -> bool:
    if pattern in POLYMORPHIC:
        if pattern in _ARRAYS:
            return source.endswith("[]") or (source == "unknown" or source in VECTORS)
        if pattern in _STRUCTURED_PATTERNS:
            of = _STRUCTURED_PATTERNS[pattern]
            return source == "unknown" or (name_of_key(source) == of and source[-2:] != "[]")
        if pattern == "anyenum":
            return source == "unknown" or (source.startswith("enum:") and source[-1] != "]")
        return pattern != "anynonarray" or not (
            source.endswith("[]") or name_of_key(source) in (*CONTAINERS, "shaped")
        )
    if pattern in VECTORS:
        return source == pattern  # an unknown literal takes anyarray, as in PostgreSQL
    if pattern == "mz_timestamp":
        return source in (pattern, "unknown")  # otherwise an integer and a date would match it
    return implicitly_castable(parse_type(source), parse_type(pattern))


def _category(pattern: str) -> str:
    if pattern in POLYMORPHIC:
        return "P"
    return "A" if pattern.endswith("[]") else TYPES[name_of_key(pattern)].category


def _preferred(pattern: str) -> bool:
    if pattern in POLYMORPHIC or pattern.endswith("[]"):
        return False
    return TYPES[name_of_key(pattern)].preferred


class Candidate(NamedTuple):
    """An overload with as many patterns as the call has arguments."""

    function: ScalarFunction
    patterns: tuple[str, ...]
    targets: tuple[str, ...]


def candidates_of(overloads: Iterable[Overload], count: int) -> tuple[Candidate, ...]:
    """Return those of `overloads` that take `count` arguments."""
    found: list[Candidate] = []
    for overload in overloads:
        patterns, targets = overload.patterns, overload.targets
        if overload.function.variadic and count >= len(patterns):
            patterns += (patterns[-1],) * (count - len(patterns))
            targets += (targets[-1],) * (count - len(targets))
        if len(patterns) == count:
            found.append(Candidate(overload.function, patterns, targets))
    return tuple(found)


def is_operator(name: str) -> bool:
    """Return whether `name` is an operator."""
    return not (name[0].isalpha() or name[0] == "_")


def resolve(name: str, arg_types: Sequence[SqlType], literals: Literals = None) -> Resolved:
    """Return the resolved call of `name` with arguments of these types.

    `literals` has the datum of each literal argument (`NO_LITERAL` for others), from which scales
    of numerics may follow. Raises UndefinedFunction, AmbiguousFunction.
    """
    types = tuple(arg_types)
    inputs = tuple(type_key(t) for t in types)
    chosen = _choose_scalar(name, inputs)
    if chosen is None:
        raise undefined(name, types)
    return complete(chosen, types, literals)


@cache
def _choose_scalar(name: str, inputs: tuple[str, ...]) -> Candidate | None:
    return choose(name, inputs, candidates_of(SCALARS.get(name, ()), len(inputs)))


def _is_of_numbers(key: str) -> bool:
    """Return whether a type or pattern is of numerics without a scale."""
    return key.removesuffix("[]") in ("number", "shaped<number>")


def _as_planned(key: str) -> str:
    """Return the type by which a call is resolved, that of numerics with a scale."""
    return key.replace("number", "numeric") if _is_of_numbers(key) else key


def _as_numbers(pattern: str) -> str:
    """Return the pattern for numerics without a scale. A function without one gets planned ones."""
    return "number" if pattern == "numeric" else pattern


def _is_shaped(source: str) -> bool:
    """Return whether a type is of arrays of any shape."""
    return source.startswith("shaped<") and not source.endswith("[]")


def _as_plain(source: str) -> str:
    """Return the type by which a call is resolved, that of plain arrays."""
    return f"{_element_name(source)}[]" if _is_shaped(source) else source


def choose(name: str, inputs: tuple[str, ...], candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate that `inputs` select, or None; raises AmbiguousFunction.

    Arrays of any shape select as plain ones; then their own form is taken, if there is. A function
    without one gets plain arrays, and fails for others.
    """
    plain = [c for c in candidates if not _is_form(c)]
    if not any(map(_is_shaped, inputs)):
        return _choose_plain(name, inputs, plain)
    chosen = _exact(name, inputs, candidates)
    chosen = chosen or _choose_plain(name, tuple(map(_as_plain, inputs)), plain)
    if chosen is None:
        return None
    wanted = tuple(_WITH_SHAPE.get(pattern, pattern) for pattern in chosen.patterns)
    return next((c for c in candidates if c.patterns == wanted), chosen)


def _is_form(candidate: Candidate) -> bool:
    """Return whether it is the form of a function for arrays of any shape; users' have none."""
    is_system = candidate.function is not None
    return is_system and any(p in _WITH_SHAPE.values() for p in candidate.patterns)


def _choose_plain(
    name: str, inputs: tuple[str, ...], candidates: Sequence[Candidate]
) -> Candidate | None:
    """Return the candidate that `inputs` select, none of them an array of any shape.

    Numerics without a scale select as those with one; then their own form is taken, if there is.
    """
    planned = [c for c in candidates if not any(map(_is_of_numbers, c.patterns))]
    if not any(map(_is_of_numbers, inputs)):
        return _choose(name, inputs, planned)
    chosen = _choose(name, tuple(map(_as_planned, inputs)), planned)
    if chosen is None:
        return None
    wanted = tuple(map(_as_numbers, chosen.patterns))
    return next((c for c in candidates if c.patterns == wanted), chosen)


def _choose(
    name: str, inputs: tuple[str, ...], candidates: Sequence[Candidate]
) -> Candidate | None:
    exact = _exact(name, inputs, candidates)
    if exact is not None:
        return exact
    possible = [
        c
        for c in candidates
        if all(_castable(s, p) for s, p in zip(inputs, c.patterns, strict=True))
        and _consistent(inputs, c.patterns)
    ]
    if len(possible) > 1:
        possible = _select(inputs, possible)
        if len(possible) != 1:
            raise ambiguous(name, tuple(parse_type(i) for i in inputs))
    return possible[0] if possible else None


def _exact(name: str, inputs: tuple[str, ...], candidates: Sequence[Candidate]) -> Candidate | None:
    wanted = inputs
    if is_operator(name) and len(inputs) == 2 and inputs.count("unknown") == 1:
        wanted = (inputs[1], inputs[1]) if inputs[0] == "unknown" else (inputs[0], inputs[0])
    return next((c for c in candidates if c.patterns == wanted), None)


def _consistent(inputs: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Return whether the polymorphic parameters agree."""
    elements: set[str] = set()
    compatible: list[SqlType] = []
    for source, pattern in zip(inputs, patterns, strict=True):
        if pattern == "anymap" and source == "unknown" and len(patterns) > 1:
            pairs = zip(inputs, patterns, strict=True)
            if not any(of == "anymap" and given != "unknown" for given, of in pairs):
                return False
        if source == "unknown" or pattern not in POLYMORPHIC or pattern == "any":
            continue
        if pattern == "anyrecord":
            continue
        element = _element_name(source) if pattern in _CONTAINERS else source
        if pattern.startswith("anycompatible"):
            compatible.append(parse_type(element))
        elif pattern != "anynonarray" or "anyelement" in patterns:
            elements.add(element)
    return len(elements) <= 1 and (not compatible or select_common_type(compatible) is not None)


def _element_name(source: str) -> str:
    if source.endswith("[]"):
        return source[:-2]
    if "<" in source:
        return source[source.index("<") + 1 : -1]
    return VECTORS[source].name


def _select(inputs: tuple[str, ...], candidates: Sequence[Candidate]) -> list[Candidate]:
    best = _best(
        candidates,
        lambda c: sum(s == p and s != "unknown" for s, p in zip(inputs, c.patterns, strict=True)),
    )
    if len(best) == 1:
        return best
    categories = ["X" if s == "unknown" else _category(s) for s in inputs]
    best = _best(
        best,
        lambda c: sum(
            s != "unknown" and (s == p or (_preferred(p) and _category(p) == category))
            for s, p, category in zip(inputs, c.patterns, categories, strict=True)
        ),
    )
    if len(best) == 1 or "unknown" not in inputs:
        return best
    narrowed = _by_categories(inputs, best)
    if len(narrowed) == 1:
        return narrowed
    known = {s for s in inputs if s != "unknown"}
    if len(known) == 1:
        (only,) = known
        assumed = (only,) * len(inputs)
        fitting = [
            c
            for c in narrowed
            if all(_castable(only, p) for p in c.patterns) and _consistent(assumed, c.patterns)
        ]
        if len(fitting) == 1:
            return fitting
    return narrowed


def _best(candidates: Sequence[Candidate], score: Callable[[Candidate], int]) -> list[Candidate]:
    best = max(map(score, candidates))
    return [c for c in candidates if score(c) == best]


def _by_categories(inputs: tuple[str, ...], candidates: Sequence[Candidate]) -> list[Candidate]:
    slots: dict[int, tuple[str, bool]] = {}
    for i, source in enumerate(inputs):
        if source != "unknown":
            continue
        offered = [c.patterns[i] for c in candidates]
        categories = {_category(p) for p in offered}
        if "S" in categories:
            category = "S"
        elif len(categories) == 1:
            (category,) = categories
        else:
            return list(candidates)
        slots[i] = category, any(_preferred(p) for p in offered if _category(p) == category)
    kept = [
        c
        for c in candidates
        if all(
            _category(c.patterns[i]) == category and (not preferred or _preferred(c.patterns[i]))
            for i, (category, preferred) in slots.items()
        )
    ]
    return kept or list(candidates)


def complete(chosen: Candidate, types: tuple[SqlType, ...], literals: Literals) -> Resolved:
    """Return the resolved call of `chosen` with arguments of `types`."""
    function, patterns, targets = chosen
    given = literals or (NO_LITERAL,) * len(types)
    element = _common_element(types, patterns)
    if "anyrecord" in patterns and any(t.name == "unknown" for t in types):
        known = [t for t, p in zip(types, patterns, strict=True) if p == "anyrecord"]
        record = next((t for t in known if t.name != "unknown"), RECORD)
        types = tuple(
            record if p == "anyrecord" and t.name == "unknown" else t
            for t, p in zip(types, patterns, strict=True)
        )
    arg_types = tuple(
        _argument(pattern, target, source, literal, element)
        for pattern, target, source, literal in zip(patterns, targets, types, given, strict=True)
    )
    if callable(function.result):
        result = function.result(arg_types, given)
    elif function.result in ("anyelement", "anyenum", "anycompatible", "anynonarray"):
        assert element is not None, function
        result = element
    elif function.result in _CONTAINERS:
        assert element is not None, function
        result = _of_items(function.result, types, patterns, element)
    else:
        result = parse_type(function.result)
    return Resolved(function.key, arg_types, result)


def _of_items(
    pattern: str, types: Sequence[SqlType], patterns: Sequence[str], element: SqlType
) -> SqlType:
    """Return the type of `element` for a pattern; of the catalog if an argument is of that type."""
    made = _CONTAINERS[pattern](element)
    for source, of in zip(types, patterns, strict=True):
        if of == pattern and source.defined is not None and source.members == made.members:
            return source
    return made


def _common_element(types: tuple[SqlType, ...], patterns: tuple[str, ...]) -> SqlType | None:
    found: list[SqlType] = []
    polymorphic = False
    for source, pattern in zip(types, patterns, strict=True):
        if pattern not in POLYMORPHIC or pattern in ("any", "anynonarray", "anyrecord"):
            continue
        polymorphic = True
        if source.name == "unknown":
            continue
        if pattern in _STRUCTURED_PATTERNS and source.members:
            found.append(item_of(source))
        elif pattern in _CONTAINERS:
            found.append(source.element or parse_type(_element_name(type_key(source))))
        else:
            found.append(source)
    if not polymorphic:
        return None
    if not found:
        if any(p.startswith("anycompatible") for p in patterns):
            return TEXT
        raise DatatypeMismatch(
            "could not determine polymorphic type because input has type unknown"
        )
    return select_common_type(found)


def _argument(
    pattern: str, target: str, source: SqlType, literal: object, element: SqlType | None
) -> SqlType:
    if pattern in ("any", "anynonarray"):
        return TEXT if source.name == "unknown" else source
    if pattern in _CONTAINERS:
        assert element is not None
        return _of_items(pattern, (source,), (pattern,), element)
    if pattern == "anyrecord":
        return source
    if pattern in POLYMORPHIC:
        assert element is not None
        return element
    if target == "numeric":
        return natural_numeric(source, literal)
    if type_key(source) == target:
        return source
    return parse_type(target)


def spelled(name: str, types: Sequence[SqlType]) -> str:
    """Return the call as written in error messages."""
    if is_operator(name):
        operands = [str(t) for t in types]
        return f"{operands[0]} {name} {operands[1]}" if len(types) == 2 else f"{name} {operands[0]}"
    return f"{name}({', '.join(map(str, types))})"


def undefined(name: str, types: tuple[SqlType, ...]) -> UndefinedFunction:
    """Return the error of a missing function or operator over these types."""
    if not is_operator(name):
        return UndefinedFunction(
            f"function {spelled(name, types)} does not exist",
            hint="No function matches the given name and argument types. "
            "You might need to add explicit type casts.",
        )
    if len(types) == 1:
        hint = (
            "No operator matches the given name and argument type. "
            "You might need to add an explicit type cast."
        )
    else:
        hint = (
            "No operator matches the given name and argument types. "
            "You might need to add explicit type casts."
        )
    return UndefinedFunction(f"operator does not exist: {spelled(name, types)}", hint=hint)


def ambiguous(name: str, types: tuple[SqlType, ...]) -> AmbiguousFunction:
    """Return the error of a call for which no function is the best."""
    if is_operator(name):
        return AmbiguousFunction(
            f"operator is not unique: {spelled(name, types)}",
            hint="Could not choose a best candidate operator. "
            "You might need to add explicit type casts.",
        )
    return AmbiguousFunction(
        f"function {spelled(name, types)} is not unique",
        hint="Could not choose a best candidate function. "
        "You might need to add explicit type casts.",
    )
