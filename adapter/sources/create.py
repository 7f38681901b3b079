"""CREATE SOURCE: the source and the relations that it writes, in the catalog.

Its process begins when the transaction has committed (`ingestion.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.clusters import cluster_called
from foreshore.adapter.ddl.create import refuse_reserved
from foreshore.adapter.ddl.marks import add_marks, with_marks
from foreshore.adapter.ddl.objects import add_item, is_taken, schema_of
from foreshore.adapter.definitions.plan_items import constraint_names, plan_item
from foreshore.adapter.sources.chosen import of_all_tables, parts_of_new
from foreshore.adapter.sources.webhook_check import check_condition
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.builtin.registry import refuse_system_inputs
from foreshore.errors import DatabaseError, FeatureNotSupported
from foreshore.expr.ir import Get
from foreshore.ids import GlobalId
from foreshore.item_view import Name
from foreshore.sources.files import FilesSource
from foreshore.sources.kafka import KafkaSource, Messages
from foreshore.sources.outputs import LATE, OWN_ROWS, Output, output_called
from foreshore.sources.spec import Feed, SourceSpec
from foreshore.sources.webhook import WebhookSource
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateSource, CreateSubscription, CreateTable
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.full_names import dotted


def create_source(context: StatementContext, plan: CreateSource) -> Completed:
    """Run CREATE SOURCE."""
    if plan.name.temporary:
        raise FeatureNotSupported("sources cannot be temporary")
    if is_taken(context, plan.name, if_not_exists=plan.if_not_exists):
        return Completed("CREATE SOURCE")
    id = context.catalog_change().allot_item()
    assert context.discovered is not None, plan
    found = context.discovered
    outputs: Mapping[str, Output] = found.outputs
    if plan.asked is not None and plan.asked.every:
        outputs = of_all_tables(context.notice, outputs)
    parts = parts_of_new(plan.name, plan.progress, found.spec, outputs, plan.asked)
    if isinstance(found.spec, WebhookSource):
        check_condition(context.planner.reader(), found.spec)
    own = output_called(found.outputs, OWN_ROWS)
    feed = Feed(id, OWN_ROWS, found.spec, own.details)
    reads = () if plan.input is None else tuple(plan.input.depends_on)
    cluster = cluster_called(context.planner, context.cluster, plan.cluster).id
    if plan.watermark is not None:
        check_appends(found.spec)
    fed = _Fed(plan.name, own, feed, plan.watermark)
    _add(context, fed, id, *reads, cluster=cluster)
    if plan.watermark is not None:
        _add_late(context, fed, id)
    for each in parts:
        output = output_called(found.outputs, each.reference)
        feed = Feed(id, each.reference, details=output.details)
        add_part(context, each.name, output, feed)
    if plan.input is not None:
        _add_input(context, id, plan.input)
    return Completed("CREATE SOURCE")


def _add_input(context: StatementContext, source: GlobalId, plan: CreateSubscription) -> None:
    """Add the durable subscription by which a source reads a relation, a part of the source.

    It holds the history that the source has not read. It moves in the commits of the source's rows.
    """
    refuse_system_inputs(plan.query.relation, "a source")
    is_taken(context, plan.name, if_not_exists=False)
    schema = schema_of(context, plan.name)
    inputs = (*plan.depends_on, source)
    item = add_item(context, plan, schema, plan.name.item, inputs, part_of=source)
    # Plan it from its text as the next start will, so that the same history is held.
    change, planned = context.catalog_change(), context.planner.reader().planned
    found = change.planned[item.id] = plan_item(change.state, planned, item)
    if not isinstance(found.definition, Get):
        raise FeatureNotSupported(
            "sources over relations whose columns have changed are not supported",
            hint="Create a materialized view of it.",
        )


@dataclass(frozen=True, slots=True)
class _Fed:
    """A relation that a source writes."""

    name: Name
    output: Output
    feed: Feed
    watermark: str | None = None  # the text of its definition


def check_appends(spec: SourceSpec) -> None:
    """Raise FeatureNotSupported if the rows of a source may leave or change."""
    match spec:
        case KafkaSource(messages=Messages(envelope="none")):
            return
        case FilesSource(format="parquet" | "csv" | "json"):
            return
    raise FeatureNotSupported(
        "a watermark needs a source that only adds rows",
        hint="These are topics of Kafka without an envelope, and files in Parquet, CSV or JSON.",
    )


def add_part(
    context: StatementContext,
    name: Name,
    output: Output,
    feed: Feed,
    watermark: str | None = None,
) -> GlobalId:
    """Return the id of a new relation that an existing source writes, a part of it."""
    is_taken(context, name, if_not_exists=False)
    source = GlobalId(feed.source)
    id = context.catalog_change().allot_item()
    fed = _Fed(name, output, feed, watermark)
    _add(context, fed, id, source, part_of=source)
    if watermark is not None:
        _add_late(context, fed, id)
    return id


def _add_late(context: StatementContext, fed: _Fed, of: GlobalId) -> None:
    """Add the relation of the rows that are below the watermark of another one, a part of it."""
    name = Name(fed.name.database, fed.name.schema, f"{fed.name.item}_late")
    is_taken(context, name, if_not_exists=False)
    feed = Feed(fed.feed.source, f"{LATE}{fed.feed.reference}")
    id = context.catalog_change().allot_item()
    inputs = dict.fromkeys((GlobalId(fed.feed.source), of))
    _add(context, _Fed(name, Output(fed.output.columns), feed), id, *inputs, part_of=of)


def _add(
    context: StatementContext,
    fed: _Fed,
    id: GlobalId,
    *inputs: GlobalId,
    cluster: str | None = None,
    part_of: GlobalId | None = None,
) -> None:
    """Add a relation; what is kept of it is the statement of a table with its columns."""
    plan = _planned(context.planner, fed)
    refuse_reserved(plan.desc.names)
    plan = with_marks(context, plan)
    item = add_item(
        context,
        plan,
        schema_of(context, fed.name),
        fed.name.item,
        inputs,
        id=id,
        cluster=cluster,
        part_of=part_of,
        feed=fed.feed,
        constraints=constraint_names(plan),
    )
    add_marks(context, item, plan)


def _planned(planner: Planner, fed: _Fed) -> CreateTable:
    """Return the plan of the statement of a relation.

    Raises FeatureNotSupported if a column has a type that tables cannot have.
    """
    reader = planner.reader()
    try:
        (syntax,) = parse(_table_text(fed))
        plan = plan_statement(syntax, reader)
    except DatabaseError:
        if fed.output.details:
            check_types(planner, fed.feed.reference, fed.output)
        raise
    assert isinstance(plan, CreateTable), plan
    return plan


def check_types(planner: Planner, table: str, output: Output) -> None:
    """Raise FeatureNotSupported if a column of an output has a type that tables cannot have."""
    reader = planner.reader()
    for column in output.columns:
        try:
            (syntax,) = parse(f"SELECT NULL::{column.type}")
            plan_statement(syntax, reader)
        except DatabaseError as error:
            schema, _, rest = table.rpartition(".")
            name = ".".join(quote_identifier(each) for each in (schema, rest, column.name) if each)
            raise FeatureNotSupported(
                f'column "{column.name}" of table "{table}" has the type {column.type},'
                " which is not supported",
                hint=f"Read it as text by TEXT COLUMNS ({name}), or leave it out by EXCLUDE COLUMNS"
                f" ({name}).",
            ) from error


def _table_text(fed: _Fed) -> str:
    """Return CREATE TABLE with the columns of an output."""
    name, output = fed.name, fed.output
    parts = [
        f"{quote_identifier(each.name)} {each.type}{'' if each.nullable else ' NOT NULL'}"
        for each in output.columns
    ]
    if output.key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote_identifier, output.key))})")
    if fed.watermark is not None:
        parts.append(fed.watermark)
    return f"CREATE TABLE {dotted(name.parts)} ({', '.join(parts)})"
