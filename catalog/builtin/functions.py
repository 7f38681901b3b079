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
    return tuple(_function(*line) for line in recorded("functions"))


def _function(oid: str, name: str, kind: str, *rest: str) -> Function:
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
def _oids() -> dict[str, int]:
    return {function.name: function.oid for function in functions()}


def type_functions(name: str) -> dict[str, int]:
    """Return the functions of a type by their columns in pg_type, 0 where there is none."""
    oids = _oids()
    found = {}
    stem = "cash" if name == "money" else name
    for column, ending in (
        *(("typinput", "in"), ("typoutput", "out"), ("typreceive", "recv"), ("typsend", "send")),
        *(("typmodin", "typmodin"), ("typmodout", "typmodout")),
    ):
        found[column] = oids.get(stem + ending) or oids.get(f"{stem}_{ending}") or 0
    return found


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
