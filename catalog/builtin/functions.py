"""pg_proc: the functions of PostgreSQL that Foreshore has, with PostgreSQL's oids.

`functions.tsv` has one line for each, as `tests/catalog/record.py` writes it. The input and output
functions of types are among them, as drivers tell arrays by `typinput = 'array_in'::regproc`; they
cannot be called.
"""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

SYSTEM_NAMESPACE = 11
SYSTEM_OWNER = 10
INTERNAL_LANGUAGE = 12


class Function(NamedTuple):
    """One function of PostgreSQL's."""

    oid: int
    name: str
    kind: str
    strict: bool
    returns_set: bool
    volatility: str
    result: int
    arguments: tuple[int, ...]
    all_arguments: tuple[int, ...] | None  # with those of results
    modes: tuple[str, ...] | None
    names: tuple[str, ...] | None
    variadic: int
    defaults: int
    default_texts: str | None
    rows: float
    parallel: str
    source: str


def recorded(name: str) -> list[list[str]]:
    """Return the fields of each line of a file that `tests/catalog/record.py` wrote."""
    text = files("foreshore.catalog.builtin").joinpath(f"{name}.tsv").read_text()
    return [line.split("\t") for line in text.split("\n") if line]


@cache
def functions() -> tuple[Function, ...]:
    """Return all functions, in the order of their oids."""
    return tuple(_read(*line) for line in recorded("functions"))


def _read(oid: str, name: str, kind: str, *rest: str) -> Function:
    strict, returns_set, volatility, result, arguments, everything, modes, names, *more = rest
    variadic, defaults, texts, rows, parallel, source = more
    return Function(
        int(oid),
        name,
        kind,
        strict == "t",
        returns_set == "t",
        volatility,
        int(result),
        tuple(map(int, arguments.split())),
        tuple(map(int, everything.split())) or None,
        tuple(modes.split()) or None,
        tuple(names.split(" ")) if names else None,
        int(variadic),
        int(defaults),
        texts or None,
        float(rows),
        parallel,
        source or name,
    )


@cache
def function_oids() -> dict[str, int]:
    """Return the oids of functions by their names."""
    return {function.name: function.oid for function in functions()}


_COLUMNS = {
    **{"typinput": "in", "typoutput": "out", "typreceive": "recv", "typsend": "send"},
    **{"typmodin": "typmodin", "typmodout": "typmodout", "typanalyze": "typanalyze"},
    "typsubscript": "subscript_handler",
}
_SUBSCRIPTS = {"name": "raw_array", "int2vector": "array", "oidvector": "array", "jsonb": "jsonb"}


def type_functions(name: str) -> dict[str, int]:
    """Return the functions of a type by their columns in pg_type, 0 where there is none."""
    if name == "array":
        return array_functions("")
    found = {column: _function(_stem(name), ending) for column, ending in _COLUMNS.items()}
    found["typsubscript"] = _function(_SUBSCRIPTS.get(name, ""), "subscript_handler")
    return found


def array_functions(element: str) -> dict[str, int]:
    """Return the functions of the arrays of a type; their modifiers are those of the type."""
    found = {column: _function("array", ending) for column, ending in _COLUMNS.items()}
    of_element = type_functions(element) if element else {}
    return found | {each: of_element.get(each, 0) for each in ("typmodin", "typmodout")}


def domain_functions(base: str) -> dict[str, int]:
    """Return the functions of a domain: it checks what is read and is written as its base type."""
    found = type_functions(base)
    read = {"typinput": _function("domain", "in"), "typreceive": _function("domain", "recv")}
    return found | read | dict.fromkeys(("typmodin", "typmodout", "typsubscript"), 0)


def _stem(name: str) -> str:
    """Return how the names of a type's functions begin: mostly with the type's own name."""
    for kind in ("multirange", "range"):
        if name.endswith(kind) and not name.startswith("any"):
            return kind
    return "cash" if name == "money" else name


def _function(stem: str, ending: str) -> int:
    oids = function_oids()
    return oids.get(stem + ending) or oids.get(f"{stem}_{ending}") or 0


def pg_proc_rows() -> Iterator[dict[str, object]]:
    """Yield the rows of pg_proc; columns that are left out have their type's empty value."""
    for function in functions():
        yield {
            "oid": function.oid,
            "proname": function.name,
            "pronamespace": SYSTEM_NAMESPACE,
            "proowner": SYSTEM_OWNER,
            "prolang": INTERNAL_LANGUAGE,
            "procost": 1.0,
            "prorows": function.rows,
            "provariadic": function.variadic,
            "prokind": function.kind,
            "proisstrict": function.strict,
            "proretset": function.returns_set,
            "provolatile": function.volatility,
            "proparallel": function.parallel,
            "pronargs": len(function.arguments),
            "pronargdefaults": function.defaults,
            "prorettype": function.result,
            "proargtypes": function.arguments,
            "proallargtypes": function.all_arguments,
            "proargmodes": function.modes,
            "proargnames": function.names,
            "proargdefaults": function.default_texts,
            "prosrc": function.source,
        }
