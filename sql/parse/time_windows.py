"""The arguments of TUMBLE, HOP and SESSION, by place or by name."""

from collections.abc import Sequence

import msgspec

from foreshore.errors import SyntaxError_, UndefinedFunction
from foreshore.sql import ast

_LENGTHS = {"tumble": ("size", "offset"), "hop": ("slide", "size", "offset"), "session": ("gap",)}
_OPTIONAL = ("offset",)
Arguments = Sequence[tuple[str | None, ast.Expression]]


def time_window(item: ast.TimeWindowRef, args: Arguments) -> ast.TimeWindowRef:
    """Return the item with its arguments: the time, keys of sessions, and lengths."""
    names = ("timecol", *_LENGTHS[item.kind])
    keys = item.keys
    if item.kind == "session" and len(args) > 2 and _columns(args[1][1]) is not None:
        keys = (*keys, *(_columns(args[1][1]) or ()))
        args = (args[0], *args[2:])
    if keys and item.kind != "session":
        raise SyntaxError_(f"{item.kind.upper()} has no partitions", position=item.at + 1)
    given: dict[str, ast.Expression] = {}
    for place, (name, value) in enumerate(args):
        if name is None and place < len(names):
            name = names[place]
        if name not in names or name in given:
            raise _wrong(item)
        given[name] = value
    if any(name not in given for name in names if name not in _OPTIONAL):
        raise _wrong(item)
    time = given.pop("timecol")
    columns = _columns(time) or (time,)
    if len(columns) != 1 or not isinstance(columns[0], ast.ColumnRef):
        raise SyntaxError_(
            f"the time of {item.kind.upper()} has to be a column", position=item.at + 1
        )
    return msgspec.structs.replace(item, time=columns[0], keys=keys, lengths=given)


def _columns(expr: ast.Expression) -> tuple[ast.Expression, ...] | None:
    """Return the columns of `DESCRIPTOR(a, b)`, None for any other expression."""
    if isinstance(expr, ast.FunctionCall) and expr.name == ("descriptor",):
        return expr.args
    return None


def _wrong(item: ast.TimeWindowRef) -> UndefinedFunction:
    lengths = ", ".join(f"[{name}]" if name in _OPTIONAL else name for name in _LENGTHS[item.kind])
    keys = " [PARTITION BY keys]" if item.kind == "session" else ""
    return UndefinedFunction(
        f"{item.kind.upper()} does not take these arguments",
        hint=f"Write {item.kind.upper()}(TABLE name{keys}, DESCRIPTOR(time), {lengths}).",
        position=item.at + 1,
    )
