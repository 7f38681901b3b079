"""jsonpath: jsonb_path_query and its kin, `@?` and `@@`.

The functions ending in _tz compare moments of a zone and local ones, in UTC here and in the
session's zone by the forms that take it.
"""

from collections.abc import Callable
from datetime import tzinfo
from typing import Any

from foreshore.expr.functions.function import Kernel, declare, declare_table, hidden
from foreshore.expr.functions.jsonpath_items import any_items, items_of
from foreshore.expr.functions.jsonpath_moments import Moment
from foreshore.expr.functions.jsontext import dumps, loads
from foreshore.expr.functions.rows import Failure, fail, mapped
from foreshore.expr.functions.temporal import zone_of
from foreshore.jsonpath import parse

Zone = tzinfo | None
_ALWAYS_RAISED = ("0A000", "42704", "54000", "54001", "57014")


def _shown(value: Any) -> Any:
    return value.text if isinstance(value, Moment) else value


def _variables(text: str) -> dict[str, Any]:
    found = loads(text)
    if not isinstance(found, dict):
        raise fail("22023", '"vars" argument is not an object')
    return found


def _found(target: str, path: str, variables: str, silent: bool, zone: Zone) -> list[Any]:
    """Return the items; those before an error if `silent`."""
    found: list[Any] = []
    values = _variables(variables)
    try:
        for item in items_of(parse(path), loads(target), values, zone):
            found.append(_shown(item))
    except Failure as failure:
        if not silent or failure.text[:5] in _ALWAYS_RAISED:
            raise
    except RecursionError:
        raise fail("54001", "stack depth limit exceeded") from None
    return found


def _exists(
    target: str, path: str, variables: str = "{}", silent: bool = False, zone: Zone = None
) -> bool | None:
    values = _variables(variables)
    try:
        return any_items(parse(path), loads(target), values, zone)
    except Failure as failure:
        if not silent or failure.text[:5] in _ALWAYS_RAISED:
            raise
        return None
    except RecursionError:
        raise fail("54001", "stack depth limit exceeded") from None


def _match(
    target: str, path: str, variables: str = "{}", silent: bool = False, zone: Zone = None
) -> bool | None:
    found = _found(target, path, variables, silent, zone)
    if len(found) == 1 and (found[0] is None or isinstance(found[0], bool)):
        return found[0]
    if not silent:
        raise fail("22038", "single boolean result is expected")
    return None


def _query(
    target: str, path: str, variables: str = "{}", silent: bool = False, zone: Zone = None
) -> tuple[str, ...]:
    return tuple(map(dumps, _found(target, path, variables, silent, zone)))


def _array(
    target: str, path: str, variables: str = "{}", silent: bool = False, zone: Zone = None
) -> str:
    return dumps(_found(target, path, variables, silent, zone))


def _first(
    target: str, path: str, variables: str = "{}", silent: bool = False, zone: Zone = None
) -> str | None:
    found = _found(target, path, variables, silent, zone)
    return dumps(found[0]) if found else None


_FORMS = ("jsonb jsonpath", "jsonb jsonpath jsonb", "jsonb jsonpath jsonb bool")
_SCALARS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("jsonb_path_exists", "bool", _exists),
    ("jsonb_path_match", "bool", _match),
    ("jsonb_path_query_array", "jsonb", _array),
    ("jsonb_path_query_first", "jsonb", _first),
)


def _in_zone(compute: Callable[..., Any], zone: str | None) -> Kernel:
    """Return the kernel over (target, path, variables, silent), after a zone unless it is known."""

    def one(*args: Any) -> Any:
        if zone is not None:
            return compute(*args, zone=zone_of(zone))
        return compute(*args[1:], zone=zone_of(args[0]))

    return mapped(one)


for _args in _FORMS:
    for _name, _result, _compute in _SCALARS:
        declare(_name, _args, _result, mapped(_compute), fallible=True)
        declare(f"{_name}_tz", _args, _result, _in_zone(_compute, "UTC"), fallible=True)
        hidden(
            f"{_name}_tz(text,{_args.replace(' ', ',')})",
            *(f"text {_args}", _result, _in_zone(_compute, None)),
            fallible=True,
        )
    declare_table("jsonb_path_query", _args, "jsonb[]", mapped(_query), fallible=True)
    declare_table("jsonb_path_query_tz", _args, "jsonb[]", _in_zone(_query, "UTC"), fallible=True)
    hidden(
        f"jsonb_path_query_tz(text,{_args.replace(' ', ',')})",
        *(f"text {_args}", "jsonb[]", _in_zone(_query, None)),
        fallible=True,
    )
for _name, _compute in (("@?", _exists), ("@@", _match)):
    declare(
        _name,
        "jsonb jsonpath",
        "bool",
        mapped(lambda target, path, compute=_compute: compute(target, path, "{}", True)),
        stem="jsonb_path_exists_silently" if _name == "@?" else "jsonb_path_match_silently",
        fallible=True,
    )
