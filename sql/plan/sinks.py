"""Plans of statements about sinks."""

from dataclasses import dataclass

from foreshore.sinks.spec import SinkSpec
from foreshore.sql.plan.definitions import CreateSubscription
from foreshore.sql.plan.query import WritePlan


@dataclass(frozen=True, slots=True)
class CreateSink(WritePlan):
    """CREATE SINK: a durable subscription whose consumer is an external system."""

    subscription: CreateSubscription
    spec: SinkSpec
    cluster: str | None
