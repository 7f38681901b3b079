"""ALTER SINK ... SET FROM: a sink goes on with another relation, from its own frontier."""

from collections.abc import Sequence

from msgspec.structs import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.definitions.plan_items import plan_item
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.builtin.registry import refuse_system_inputs
from foreshore.catalog.item import AT_COMMIT, Item
from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
)
from foreshore.expr.ir import Get
from foreshore.ids import GlobalId, is_builtin
from foreshore.sinks.kafka import KafkaTarget
from foreshore.sinks.spec import SinkSpec
from foreshore.sources.formats import AvroFormat
from foreshore.sql.plan import SetSinkFrom
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import ColumnType, RelationDesc


def set_sink_from(context: StatementContext, plan: SetSinkFrom) -> Completed:
    """Run ALTER SINK ... SET FROM; the relations change when the transaction commits."""
    item = find_if_exists(
        context.planner, context.notice, "sink", plan.name, if_exists=plan.if_exists, altered=True
    )
    if item is None:
        return Completed("ALTER SINK")
    assert isinstance(item, Item), item
    spec, query = item.sink, plan.subscription.query
    assert isinstance(spec, SinkSpec), item
    refuse_system_inputs(query.relation, "a sink")
    reader = context.planner.reader()
    before, previous = reader.planned[item.id].desc, _written(context.planner, item.id)
    if isinstance(query.relation, Get) and query.relation.id == previous:
        return Completed("ALTER SINK")
    _check_columns(item.name, spec, before, query.desc)
    if spec.key_known and not any(set(key) <= set(spec.key) for key in plan.keys):
        raise InvalidParameterValue(
            f"the columns ({', '.join(spec.key)}) of the relation are not known to be unique",
            hint="They are the key of the sink. Create another sink with KEY ... NOT ENFORCED.",
        )
    made = context.transaction.made(item.id)  # then it has not begun
    if not made and context.tables.subscriptions.previous(item.id) is not None:
        raise ObjectNotInPrerequisiteState(
            f'sink "{item.name}" has not written the change to its present relation',
            hint=f"Run WAIT FOR SINKS {item.name} first.",
        )
    change = context.catalog_change()
    needs = [each for each in plan.subscription.depends_on if not is_builtin(each)]
    name = dotted(change.state.full_name(item))
    _, _, text = plan.subscription.sql.partition(" FOR (")
    altered = change.alter_subscription(
        item,
        f"CREATE SUBSCRIPTION {name} FOR ({text}",
        needs,
        _cut(spec, previous, altered=needs, made=made),
    )
    # Plan it from its text as the next start will, so that the same history is held.
    found = change.planned[item.id] = plan_item(change.state, reader.planned, altered)
    if not isinstance(found.definition, Get):
        raise FeatureNotSupported(
            "sinks of relations whose columns have changed are not supported",
            hint="Create a materialized view of it.",
        )
    return Completed("ALTER SINK")


def _cut(
    spec: SinkSpec, previous: GlobalId, *, altered: Sequence[GlobalId], made: bool
) -> SinkSpec:
    """Return a sink whose relation changes when the transaction commits.

    One that the transaction has `made` just begins with the other relation. One that it has altered
    before still comes from the relation that was there at first.
    """
    if made:
        return spec
    first = GlobalId(spec.previous) if spec.cut == AT_COMMIT else previous
    if first in altered:
        return replace(spec, previous="", cut=0)
    return replace(spec, previous=first, cut=AT_COMMIT)


def _written(planner: Planner, sink: GlobalId) -> GlobalId:
    """Return the relation that a sink writes."""
    definition = planner.reader().planned[sink].definition
    assert isinstance(definition, Get), sink
    return definition.id


def _check_columns(name: str, spec: SinkSpec, old: RelationDesc, new: RelationDesc) -> None:
    """Raise DatatypeMismatch unless rows of both relations may be in the same target."""
    if old.names != new.names:
        raise DatatypeMismatch(
            f'the relation has other columns than that of sink "{name}"',
            detail=f"They are ({', '.join(new.names)}) in place of ({', '.join(old.names)}).",
            hint="Create a materialized view with the names and the order of the former ones.",
        )
    for column, was, now in zip(old.names, old.columns, new.columns, strict=True):
        if was.type != now.type:
            raise DatatypeMismatch(
                f'column "{column}" has type {now.type}, and {was.type} in sink "{name}"',
                hint=f"Create a materialized view that casts it to {was.type}.",
            )
        if was.nullable != now.nullable and _needs_same_nulls(spec, column, was):
            raise DatatypeMismatch(
                f'column "{column}" may be NULL in one of the two relations of sink "{name}" only',
                hint="Drop the sink, empty the target, and create it anew.",
            )


def _needs_same_nulls(spec: SinkSpec, column: str, was: ColumnType) -> bool:
    """Return whether rows of the former relation would be read wrongly with other NULLs.

    Rows of the key are found by it, and Debezium's messages have former rows as a whole. Avro has
    no NULL in a column without; it would make a message that deletes the row.
    """
    target = spec.target
    is_avro = isinstance(target, KafkaTarget) and isinstance(target.value, AvroFormat)
    return column in spec.key or (was.nullable and (spec.envelope == "debezium" or is_avro))
