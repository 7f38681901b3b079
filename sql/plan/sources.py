"""Plans of statements about sources."""

from dataclasses import dataclass

from foreshore.ids import GlobalId
from foreshore.item_view import Name
from foreshore.source_spec import SourceSpec
from foreshore.sql.plan.query import WritePlan
from foreshore.types import RelationDesc


@dataclass(frozen=True, slots=True)
class FedRelation:
    """A relation that a source is to write, and the output that it gets."""

    name: Name
    reference: str


@dataclass(frozen=True, slots=True)
class CreateSource(WritePlan):
    """CREATE SOURCE; `desc` are its own rows, `parts` the relations that come with it.

    The definition that is kept has no parts: each has its own.
    """

    name: Name
    spec: SourceSpec
    desc: RelationDesc
    parts: tuple[FedRelation, ...]
    cluster: str | None
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class CreateFedTable(WritePlan):
    """CREATE SUBSOURCE: a relation that an existing source writes."""

    name: Name
    source: GlobalId
    reference: str
    desc: RelationDesc
    sql: str
