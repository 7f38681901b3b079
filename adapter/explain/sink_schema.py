"""EXPLAIN KEY SCHEMA and VALUE SCHEMA: the Avro schemas that a sink would register."""

import json

import pyarrow as pa

from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.errors import InvalidParameterValue
from foreshore.sinks.kafka import KafkaTarget
from foreshore.sources.formats import AvroFormat
from foreshore.sql.plan import SCHEMA_DESC, ExplainSinkSchema
from foreshore.storage.export.formats.avro import schema_of
from foreshore.storage.export.formats.columns import Columns


def explain_sink_schema(context: StatementContext, plan: ExplainSinkSchema) -> Selected:
    """Return the schema of the keys or the values as JSON.

    Raises InvalidParameterValue if the sink has none.
    """
    text = json.dumps(_schema(plan), indent=2)
    rows = pa.RecordBatch.from_arrays([pa.array([text], pa.string())], names=["c0"])
    return Selected(SCHEMA_DESC, BatchSource(rows), "EXPLAIN")


def _schema(plan: ExplainSinkSchema) -> dict[str, object]:
    spec, desc = plan.sink.spec, plan.sink.subscription.query.desc
    target = spec.target
    format = None
    if isinstance(target, KafkaTarget):
        format = target.key if plan.part == "key" else target.value
    if not isinstance(format, AvroFormat):
        raise InvalidParameterValue(
            f"the sink has no {plan.part}s in Avro",
            hint="Only sinks to KAFKA with FORMAT AVRO have schemas.",
        )
    assert isinstance(target, KafkaTarget), target
    if plan.part == "key":
        return schema_of(Columns(desc, spec.key), "key", format, is_change=False)
    columns = Columns(desc, target.value_columns(spec.key, desc.names))
    is_change = spec.envelope == "debezium"
    return schema_of(columns, "value", format, is_change=is_change)
