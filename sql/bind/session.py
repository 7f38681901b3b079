"""Statements about the session, its transaction, cursors and prepared statements."""

from typing import assert_never

from foreshore.digits import is_digits
from foreshore.errors import FeatureNotSupported, InvalidParameterValue
from foreshore.setting_kinds import fixed_zone
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.type_names import type_of_name
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.sql.plan import (
    Begin,
    CloseCursor,
    Commit,
    Deallocate,
    Discard,
    Execute,
    Fetch,
    Listen,
    Notify,
    Plan,
    Prepare,
    ResetVariable,
    Rollback,
    Savepoint,
    SetConstraints,
    SetTransaction,
    SetVariable,
    ShowVariable,
)
from foreshore.text import format_text, parse_text
from foreshore.types import INTERVAL, TEXT, ColumnType, RelationDesc, SqlType

_ZONE_LIMIT = 16 * 3_600_000_000  # microseconds from UTC
# Names of variables as SHOW prints them.
_SHOWN_NAMES = {
    "timezone": "TimeZone",
    "datestyle": "DateStyle",
    "intervalstyle": "IntervalStyle",
    "transaction isolation level": "transaction_isolation",
}


def bind_session(planning: Planning, tree: ast.StatementSyntax) -> Plan:
    """Return the plan of a statement about the session, its transaction or its cursors."""
    match tree:
        case ast.SetStatement(name=name, values=values, local=local):
            return SetVariable(name, values, local)
        case ast.SetConstraintsStatement(names=names, deferred=deferred):
            return SetConstraints(tuple(ref.name for ref in names), deferred)
        case ast.SetZoneStatement():
            return SetVariable("timezone", (_zone(tree),), tree.local)
        case ast.ShowVariableStatement(name=name):
            return _show_variable(name)
        case ast.ResetStatement(name=name):
            return ResetVariable(name)
        case ast.TransactionStatement():
            return _transaction(tree)
        case ast.SavepointStatement(kind=kind, name=name):
            return Savepoint(kind, name)
        case ast.PrepareStatement(name=name, types=types, start=start, end=end):
            declared = tuple(type_of_name(type, planning) for type in types)
            return Prepare(name, declared, planning.text[start:end])
        case ast.ExecuteStatement(name=name, args=args):
            binder = ExpressionBinder(planning, Scope(), Clause("EXECUTE parameters"))
            bound = tuple(map(binder.bind, args))
            if not any(map(has_subquery, bound)):
                return Execute(name, bound, offsets=tuple(map(at_of, args)))
            for scalar, arg in zip(bound, args, strict=True):
                if any(isinstance(node, ast.Query) for node in ast.nodes_of(arg)):
                    check_no_subquery(scalar, "EXECUTE parameter", at_of(arg))
            return Execute(name, bound, planning.text[tree.start + 1 : tree.end - 1])
        case ast.DeallocateStatement(name=name):
            return Deallocate(name)
        case ast.FetchStatement(name=name, count=count, timeout=timeout, move=move):
            timeout_ms = None if timeout is None else _millis(timeout)
            return Fetch(name, count, timeout_ms, move, tree.direction)
        case ast.CloseStatement(name=name):
            return CloseCursor(name)
        case ast.ListenStatement(kind=kind, channel=channel):
            return Listen(kind, channel)
        case ast.NotifyStatement(channel=channel, payload=payload):
            return Notify(channel, payload)
        case ast.DiscardStatement(what=what):
            match what:
                case "all" | "plans" | "sequences" | "temp":
                    return Discard(what)
            raise AssertionError(what)
        case ast.Unsupported(what=what, at=at):
            raise FeatureNotSupported(f"{what} is not supported", position=at + 1)
        case _:
            raise AssertionError(tree)


def _show_variable(name: str) -> ShowVariable:
    text = ColumnType(TEXT)
    if name == "all":
        return ShowVariable(name, RelationDesc(("name", "setting", "description"), (text,) * 3))
    return ShowVariable(name, RelationDesc((_SHOWN_NAMES.get(name, name),), (text,)))


def _transaction(tree: ast.TransactionStatement) -> Plan:
    match tree.kind:
        case "begin" | "start":
            return Begin(tree.read_only, tree.isolation, tree.kind == "start")
        case "commit":
            return Commit(tree.chain)
        case "rollback":
            return Rollback(tree.chain)
        case "set" | "characteristics":
            return SetTransaction(tree.read_only, tree.isolation, tree.kind == "characteristics")
        case _:
            assert_never(tree.kind)


def _zone(tree: ast.SetZoneStatement) -> str:
    """Return the zone of an interval east of Greenwich; raises 22023."""
    with located(tree.at):
        value = parse_text(tree.text, SqlType("interval", fields=tree.fields))
    assert isinstance(value, tuple)
    months, days, micros = map(int, value)
    wrong = (
        "Cannot specify months in time zone interval."
        if months
        else "Cannot specify days in time zone interval."
        if days
        else "UTC timezone offset is out of range."
        if abs(micros) >= _ZONE_LIMIT
        else None
    )
    if wrong is not None:
        shown = format_text((months, days, micros), INTERVAL)
        raise InvalidParameterValue(
            f"""invalid value for parameter "TimeZone": "INTERVAL '{shown}'\"""", detail=wrong
        )
    minutes, rest = divmod(abs(micros), 60_000_000)
    if rest:
        raise FeatureNotSupported("a time zone with seconds is not supported")
    return fixed_zone(-minutes if micros < 0 else minutes)


def _millis(timeout: str) -> int:
    """Return the time-out of FETCH, an interval or a number of seconds, in milliseconds."""
    if is_digits(timeout.replace(".", "", 1)):
        timeout += " seconds"
    value = parse_text(timeout, INTERVAL)
    assert isinstance(value, tuple)
    months, days, micros = map(int, value)
    return (months * 30 + days) * 86_400_000 + micros // 1000
