"""Plans of statements about sinks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

from foreshore.item_view import Name
from foreshore.sinks.spec import SinkSpec
from foreshore.sql.plan.definitions import CreateSubscription
from foreshore.sql.plan.query import AsOf, WritePlan
from foreshore.types import TEXT, ColumnType, RelationDesc


@dataclass(frozen=True, slots=True)
class CreateSink(WritePlan):
    """CREATE SINK: a durable subscription whose consumer is an external system."""

    subscription: CreateSubscription
    spec: SinkSpec
    cluster: str | None


@dataclass(frozen=True, slots=True)
class WaitForSinks:
    """WAIT FOR SINKS: return when the targets have what was committed until a time."""

    sinks: tuple[Name, ...] | None  # None: all
    as_of: AsOf | None


@dataclass(frozen=True, slots=True)
class AlterSink(WritePlan):
    """ALTER SINK ... SET or RESET: new values by the fields of specs; None: the default.

    With `resumes` it is ALTER SINK ... RESUME.
    """

    name: Name
    changes: Mapping[str, Any]
    if_exists: bool
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class SetSinkFrom(WritePlan):
    """ALTER SINK ... SET FROM: go on with another relation, of which these keys are known."""

    name: Name
    subscription: CreateSubscription
    keys: tuple[tuple[str, ...], ...]
    if_exists: bool


SCHEMA_DESC = RelationDesc(("schema",), (ColumnType(TEXT, nullable=False),))


@dataclass(frozen=True, slots=True)
class ExplainSinkSchema:
    """EXPLAIN KEY SCHEMA or VALUE SCHEMA FOR CREATE SINK: the schema that it would register."""

    sink: CreateSink
    part: OneOf["key", "value"]
