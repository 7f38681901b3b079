"""Bind the refresh options of materialized views, and REFRESH MATERIALIZED VIEW."""

from dataclasses import replace

from foreshore.errors import FeatureNotSupported, InvalidParameterValue
from foreshore.expr.ir import TemporalFilter
from foreshore.expr.traversal import walk_relations
from foreshore.interval_text import parse_interval
from foreshore.sql import ast
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.time import bind_time
from foreshore.sql.plan import CreateMaterializedView, CreateView, RefreshOptions, RefreshView

_POLICIES = ("auto", "incremental", "full")


def bind_refresh_options(
    planning: Planning, options: ast.RefreshOptions | None
) -> RefreshOptions | None:
    """Return the refresh options of a view; None: it follows each change at once."""
    if options is None:
        return None
    with located(options.at):
        policy = options.policy or "auto"
        if policy not in _POLICIES:
            raise InvalidParameterValue(
                f'invalid value for REFRESH POLICY: "{policy}"',
                hint="Valid values are AUTO, INCREMENTAL and FULL.",
            )
        kinds = [each.kind for each in options.refreshes]
        if "commit" in kinds and len(kinds) > 1:
            raise InvalidParameterValue("REFRESH ON COMMIT excludes other REFRESH options")
        if kinds.count("every") + kinds.count("lag") > 1:
            raise FeatureNotSupported("several intervals of refreshes are not supported")
        if "lag" in kinds and len(kinds) > 1:
            raise InvalidParameterValue("TARGET LAG excludes REFRESH options")
        if not kinds or "commit" in kinds:
            if policy == "full":
                raise InvalidParameterValue(
                    "REFRESH POLICY FULL needs a schedule",
                    hint="Add REFRESH EVERY, REFRESH AT or TARGET LAG.",
                )
            return None
    every_ms, aligned_to, at = None, None, []
    for each in options.refreshes:
        if each.interval is not None:
            with located(each.at):
                every_ms = _interval(each.interval, each.kind)
        if each.time is not None:
            what = "ALIGNED TO" if each.kind == "every" else "REFRESH AT"
            time = bind_time(planning, each.time, what)
            if each.kind == "every":
                aligned_to = time
            else:
                at.append(time)
    return RefreshOptions(every_ms, aligned_to, tuple(at), "lag" in kinds, policy)


def with_options(
    planning: Planning,
    statement: ast.CreateViewStatement,
    plan: CreateView | CreateMaterializedView,
) -> CreateView | CreateMaterializedView:
    """Return the plan of a new view with its refresh options."""
    options = bind_refresh_options(planning, statement.refresh)
    if options is None:
        return plan
    assert isinstance(plan, CreateMaterializedView), plan
    if any(isinstance(node, TemporalFilter) for node in walk_relations(plan.query.relation)):
        raise FeatureNotSupported(
            "mz_now() in a materialized view with REFRESH options is not supported",
            hint="Filter in a query over the view.",
        )
    return replace(plan, refresh=options)


def _interval(text: str, kind: str) -> int:
    """Return an interval of a fixed length in milliseconds."""
    months, days, microseconds = parse_interval(text)
    total = days * 86_400_000 + microseconds // 1000
    if months or total <= 0 or microseconds % 1000:
        raise InvalidParameterValue(
            f'invalid value for {"TARGET LAG" if kind == "lag" else "REFRESH EVERY"}: "{text}"',
            hint="Give a positive interval in days, hours, minutes, seconds or milliseconds.",
        )
    return total


def bind_refresh_view(planning: Planning, statement: ast.RefreshViewStatement) -> RefreshView:
    """Return the plan of REFRESH MATERIALIZED VIEW."""
    return RefreshView(name_of(planning, "materialized view", statement.view))
