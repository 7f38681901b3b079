"""pg_proc: the functions of PostgreSQL that Foreshore has, with PostgreSQL's oids.

`functions.tsv` has one line for each: oid, name, kind, strict, set-returning, volatility, and the
types of the result and of the arguments. The input and output functions of types are among them, as
drivers tell arrays by `typinput = 'array_in'::regproc`; they cannot be called.
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


@cache
def functions() -> tuple[Function, ...]:
    """Return all functions, in the order of their oids."""
    text = files("foreshore.catalog.builtin").joinpath("functions.tsv").read_text()
    return tuple(_function(*line.split("\t")) for line in text.splitlines())


def _function(oid: str, name: str, kind: str, *rest: str) -> Function:
    strict, returns_set, volatility, result, arguments = rest
    types = tuple(map(int, arguments.split()))
    is_set = returns_set == "t"
    return Function(int(oid), name, kind, strict == "t", is_set, volatility, int(result), types)


@cache
def _oids() -> dict[str, int]:
    return {function.name: function.oid for function in functions()}


def type_functions(name: str) -> dict[str, int]:
    """Return the functions of a type by their columns in pg_type, 0 where there is none."""
    oids = _oids()
    found = {}
    for column, ending in (
        *(("typinput", "in"), ("typoutput", "out"), ("typreceive", "recv"), ("typsend", "send")),
        *(("typmodin", "typmodin"), ("typmodout", "typmodout")),
    ):
        found[column] = oids.get(name + ending) or oids.get(f"{name}_{ending}") or 0
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
            "prorows": 1000.0 if function.returns_set else 0.0,
            "prokind": function.kind,
            "proisstrict": function.strict,
            "proretset": function.returns_set,
            "provolatile": function.volatility,
            "proparallel": "s",
            "pronargs": len(function.arguments),
            "prorettype": function.result,
            "proargtypes": function.arguments,
            "prosrc": function.name,
        }
