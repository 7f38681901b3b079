"""Names and defaults of the arguments of built-in functions: `make_interval(secs => 1)`."""

from collections.abc import Sequence

from msgspec.structs import replace

from foreshore.sql import ast

_SIGNATURES = """
json_populate_record base, from_json, use_json_as_text false
json_populate_recordset base, from_json, use_json_as_text false
jsonb_insert jsonb_in, path, replacement, insert_after false
jsonb_path_exists target, path, vars '{}', silent false
jsonb_path_match target, path, vars '{}', silent false
jsonb_path_query target, path, vars '{}', silent false
jsonb_path_query_array target, path, vars '{}', silent false
jsonb_path_query_first target, path, vars '{}', silent false
jsonb_set jsonb_in, path, replacement, create_if_missing true
jsonb_set_lax jsonb_in, path, replacement, create_if_missing true, \
null_value_treatment 'use_json_null'
make_date year, month, day
make_interval years 0, months 0, weeks 0, days 0, hours 0, mins 0, secs 0.0
make_time hour, min, sec
make_timestamp year, month, mday, hour, min, sec
make_timestamptz year, month, mday, hour, min, sec
make_timestamptz year, month, mday, hour, min, sec, timezone
parse_ident str, strict true
pg_terminate_backend pid, timeout 0
"""


def _read() -> dict[str, list[tuple[tuple[str, str], ...]]]:
    found: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for line in _SIGNATURES.strip().splitlines():
        name, _, rest = line.partition(" ")
        parameters = (each.strip().partition(" ") for each in rest.split(","))
        found.setdefault(name, []).append(tuple((p, default) for p, _, default in parameters))
    return found


_NAMED = _read()


def by_place(call: ast.FunctionCall) -> ast.FunctionCall | None:
    """Return a call of a built-in function with its named arguments by place.

    None if the function has no arguments of these names, or others are missing.
    """
    for parameters in _NAMED.get(call.name[-1], ()):
        args = _placed(call, parameters)
        if args is not None:
            return replace(call, args=args, names=())
    return None


def _placed(
    call: ast.FunctionCall, parameters: Sequence[tuple[str, str]]
) -> tuple[ast.Expression, ...] | None:
    from foreshore.sql.parse.parse import parse_expression

    count = len(call.args) - len(call.names)
    given = dict(zip(call.names, call.args[count:], strict=True))
    names = [name for name, _ in parameters[count:]]
    if len(given) < len(call.names) or not given.keys() <= set(names):
        return None
    args = list(call.args[:count])
    for name, default in parameters[count:]:
        if name in given:
            args.append(given[name])
        elif default:
            args.append(parse_expression(default))
        else:
            return None
    return tuple(args)
