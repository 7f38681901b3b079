"""Options of tables, views and indexes: pg_class.reloptions, which pg_dump writes as WITH (...).

What SHOW CREATE has in WITH is here by the same list (`object_options.py`). What it has elsewhere,
IN CLUSTER and the checks of views, has no place of its own in a dump, and is added as options.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from foreshore.catalog.bootstrap import FIRST_CLUSTER
from foreshore.catalog.item import Item
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.ids import GlobalId
from foreshore.sql import ast
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from foreshore.sql.rewrite.full_names import renamed
from foreshore.sql.rewrite.object_options import ObjectOption, maintained_options, view_options
from foreshore.types import RelationDesc

_CHECKS = " CONSTRAINT "  # before each check in a kept statement


def options_of(item: Item, desc: RelationDesc) -> list[ObjectOption]:
    """Return the options that SHOW CREATE has in WITH; `desc` are the columns."""
    retain, limit = item.retain_ms or None, item.memory_limit or None
    if item.type == "materialized view":
        return view_options(
            retain, limit, item.refresh or None, item.hydrate or None, emits=desc.append_only
        )
    append_only = item.type == "table" and desc.append_only
    return maintained_options(retain, limit, append_only=append_only, hydrate=item.hydrate or None)


def stored_options(state: State, planned: Mapping[GlobalId, Planned], id: GlobalId) -> list[str]:
    """Return what a dump has to say of a relation or index, as `name=value`."""
    item = state.item(id)
    found = [each.stored for each in options_of(item, planned[id].desc)]
    if item.security_invoker:
        found.append("security_invoker=true")
    if item.cluster is not None and (name := state.objects[item.cluster].name) != FIRST_CLUSTER:
        found.append(f"cluster={name}")
    if item.type in ("view", "materialized view") and _CHECKS in item.create_sql:
        # As in pg_get_viewdef, so that a dump can be restored into a database of another name.
        names = {then: ("", *now[1:]) for then, now in state.present_names(item).items()}
        found += _checks(renamed(item.create_sql, names))
    return found


@lru_cache(maxsize=1024)
def _checks(create_sql: str) -> tuple[str, ...]:
    """Return the checks of a view as options."""
    (statement,) = parse(create_sql)
    tree = statement.ast
    assert isinstance(tree, ast.CreateViewStatement), create_sql
    return tuple(_listed(tree.checks, create_sql))


def _listed(checks: ast.ViewChecks, text: str) -> Iterator[str]:
    if checks.assertion:
        yield "assertion=true"
    if checks.not_null:
        names = ", ".join(quote_identifier(name) for name, _ in checks.not_null)
        yield f"assert_not_null={names}"
    for each in checks.expectations:
        yield (
            f"expect=CONSTRAINT {quote_identifier(each.name)}"
            f" EXPECT ({text[each.start : each.end]}) ON VIOLATION {each.action.upper()}"
        )
    if checks.skip_errors:
        yield "on_error=skip"
