"""Tables of a source that exists: CREATE TABLE ... FROM SOURCE, ALTER SOURCE ADD and DROP.

The source is run anew with its outputs when the transaction has committed (`ingestion.py`).
"""

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.drop import drop_objects, notify_cascaded
from foreshore.adapter.ddl.objects import find_if_exists, is_taken
from foreshore.adapter.sources.chosen import Part, chosen
from foreshore.adapter.sources.create import add_part, check_appends
from foreshore.adapter.sources.versions import discovered_for, discovered_with, feed_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.news import Notices
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.write.target import lock_to_alter
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Item
from foreshore.errors import (
    DatatypeMismatch,
    InvalidParameterValue,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.item_view import Name
from foreshore.sources.kafka import KafkaSource, Messages
from foreshore.sources.outputs import OWN_ROWS, Output, is_auxiliary
from foreshore.sources.postgres import PostgresSource, TableOptions
from foreshore.sources.spec import Feed, SourceSpec
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import (
    AddSourceTables,
    AskedTable,
    AskedTables,
    CreateSourceTable,
    DropSourceTables,
    RefreshSourceTables,
)
from foreshore.storage.ingest.messages import Discovered


async def discovered_again(
    context: StatementContext, plan: CreateSourceTable | AddSourceTables | RefreshSourceTables
) -> Discovered | None:
    """Return the present outputs of the source that a statement names; None if there is none."""
    may_lack = not isinstance(plan, CreateSourceTable) and plan.if_exists
    source = source_called(context.planner, context.notice, plan.source, may_lack)
    if source is None:
        return None
    assert source.feed
    assert source.feed.spec is not None, source
    spec: SourceSpec = source.feed.spec
    lacks_reference = isinstance(plan, CreateSourceTable) and not plan.reference
    if lacks_reference and not isinstance(spec, KafkaSource):
        raise InvalidParameterValue(
            f'a table of source "{source.name}" needs a reference',
            hint="Add (REFERENCE name) after the name of the source.",
        )
    if isinstance(plan, CreateSourceTable) and isinstance(spec, KafkaSource) and not plan.messages:
        raise InvalidParameterValue(
            "a table of a topic needs a format", hint="Add FORMAT JSON, for instance."
        )
    if isinstance(plan, RefreshSourceTables) and isinstance(spec, PostgresSource):
        tables = [
            find_if_exists(
                context.planner, context.notice, "source", each, if_exists=False, altered=True
            )
            for each in plan.names
        ]
        with context.interrupts.running():
            return await discovered_for(
                context, spec, [t for t in tables if isinstance(t, Item) and is_table(source, t)]
            )
    if isinstance(plan, CreateSourceTable) and plan.options is not None:
        with context.interrupts.running():
            return await discovered_with(context, spec, plan.reference, plan.options)
    if isinstance(plan, CreateSourceTable) and plan.messages is not None:
        if not isinstance(spec, KafkaSource):
            raise InvalidParameterValue(f'tables of source "{source.name}" have no format')
        spec = msgspec.structs.replace(spec, messages=plan.messages)
    with context.interrupts.running():
        return await context.feeds.ingestion.discovered(spec)


def create_source_table(context: StatementContext, plan: CreateSourceTable) -> Completed:
    """Run CREATE TABLE ... FROM SOURCE."""
    if not is_taken(context, plan.name, if_not_exists=plan.if_not_exists):
        source = source_called(context.planner, context.notice, plan.source, False)
        assert source is not None, plan
        if plan.messages is not None:
            _add_of_topic(context, source, plan, plan.messages)
            return Completed("CREATE TABLE")
        if plan.watermark is not None:
            assert source.feed
            assert source.feed.spec is not None, source
            check_appends(source.feed.spec)
        (part,) = _parts(context, source, (AskedTable(plan.reference, plan.name),))
        output = _output(context, part)
        _check_columns(plan, part.reference, output)
        _add(context, source, part, plan.watermark, plan.options)
    return Completed("CREATE TABLE")


def _check_columns(plan: CreateSourceTable, reference: str, output: Output) -> None:
    """Raise DatatypeMismatch if the statement names other columns than the source has."""
    names = tuple(each.name for each in output.columns)
    if plan.columns is not None and plan.columns != names:
        raise DatatypeMismatch(
            f'table "{reference}" of the source has other columns',
            detail=f"It has {', '.join(names)}.",
        )


def add_source_tables(context: StatementContext, plan: AddSourceTables) -> Completed:
    """Run ALTER SOURCE ... ADD TABLE."""
    source = source_called(context.planner, context.notice, plan.source, plan.if_exists)
    if source is not None:
        for part in _parts(context, source, plan.tables):
            _add(context, source, part)
    return Completed("ALTER SOURCE")


async def drop_source_tables(context: StatementContext, plan: DropSourceTables) -> Completed:
    """Run ALTER SOURCE ... DROP TABLE."""
    source = source_called(context.planner, context.notice, plan.source, plan.if_exists)
    if source is None:
        return Completed("ALTER SOURCE")
    targets = []
    for name in plan.names:
        found = find_if_exists(
            context.planner,
            context.notice,
            "source",
            name,
            if_exists=plan.tables_may_lack,
            altered=True,
        )
        if found is None:
            continue
        assert isinstance(found, Item), found
        if found.part_of != source.id or not found.feed:
            raise WrongObjectType(f'"{found.name}" is not a table of source "{source.name}"')
        if not is_table(source, found):
            raise WrongObjectType(
                f'"{found.name}" is needed by source "{source.name}"',
                hint="Drop the source itself by DROP SOURCE.",
            )
        targets.append(found)
    dropped = drop_objects(context, targets, cascade=plan.cascade)
    tables = [each for each in dropped.objects if isinstance(each, Item)]
    await lock_to_alter(context, [each.id for each in tables if each.type == "table"])
    notify_cascaded(context.notice, dropped)
    return Completed("ALTER SOURCE")


def is_table(source: Item, item: Item) -> bool:
    """Return whether an item is a table of a source, and neither its progress nor its errors."""
    if item.part_of != source.id or not item.feed:
        return False
    return not is_auxiliary(item.feed.reference)


def source_called(planner: Planner, notice: Notices, name: Name, may_lack: bool) -> Item | None:
    """Return a source that writes relations; None, with a notice, if it may lack and does."""
    found = find_if_exists(planner, notice, "source", name, if_exists=may_lack, altered=True)
    if found is None:
        return None
    assert isinstance(found, Item), found
    if not found.feed or found.feed.spec is None:
        raise WrongObjectType(
            f'"{found.name}" is a relation of a source',
            hint="Name the source itself.",
        )
    return found


def _parts(
    context: StatementContext, source: Item, tables: tuple[AskedTable, ...]
) -> tuple[Part, ...]:
    """Return the relations asked for, in the schema of the source if they have no other name."""
    assert context.discovered is not None, source
    name = Name(*context.planner.state.full_name(source))
    return chosen(name, context.discovered.outputs, AskedTables(False, (), tables))


def _output(context: StatementContext, part: Part) -> Output:
    assert context.discovered is not None, part
    return context.discovered.outputs[part.reference]


def _add_of_topic(
    context: StatementContext, source: Item, plan: CreateSourceTable, messages: Messages
) -> None:
    """Add a table that has a format of its own; a topic may have several."""
    assert context.discovered is not None, source
    spec = context.discovered.spec
    assert isinstance(spec, KafkaSource), spec
    if plan.reference not in ("", spec.topic):
        raise UndefinedTable(
            f'table "{plan.reference}" does not exist in the source',
            hint=f"It has {quote_identifier(spec.topic)}.",
        )
    items = context.planner.state.items_of(parts_of(source.id))
    taken = {each.feed.reference for each in items if each.feed}
    reference = f"{spec.topic} as {plan.name.item}"
    while reference in taken:  # it was renamed meanwhile, or is in another schema
        reference += "'"
    output = context.discovered.outputs[OWN_ROWS]
    _check_columns(plan, spec.topic, output)
    if plan.watermark is not None:
        check_appends(msgspec.structs.replace(spec, messages=messages))
    feed = Feed(source.id, reference, details=output.details, messages=messages)
    add_part(context, plan.name, output, feed, plan.watermark)


def _add(
    context: StatementContext,
    source: Item,
    part: Part,
    watermark: str | None = None,
    options: TableOptions | None = None,
) -> None:
    """Add a relation; of tables of PostgreSQL a source may have several, of other outputs one."""
    output = _output(context, part)
    assert source.feed
    if isinstance(source.feed.spec, PostgresSource):
        feed = feed_of(context.planner, source, part.reference, output, part.name.item, options)
    else:
        for each in context.planner.state.items_of(parts_of(source.id)):
            if each.feed and each.feed.reference == part.reference:
                raise InvalidParameterValue(
                    f'source "{source.name}" writes "{part.reference}" to "{each.name}" already'
                )
        feed = Feed(source.id, part.reference, details=output.details)
    add_part(context, part.name, output, feed, watermark)
