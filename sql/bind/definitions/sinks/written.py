"""What a sink writes."""

from dataclasses import dataclass

from foreshore.item_view import Name
from foreshore.sinks.spec import Envelope
from foreshore.types import RelationDesc


@dataclass(frozen=True, slots=True)
class Written:
    """What a sink writes: rows of relation `name`, told apart by the columns of `key`."""

    name: Name
    desc: RelationDesc
    key: tuple[str, ...]
    envelope: Envelope
