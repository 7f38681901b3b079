"""Plans of statements about secrets, which do not show the values."""

from dataclasses import dataclass, field

from foreshore.item_view import Name
from foreshore.sql.plan.query import WritePlan


@dataclass(frozen=True, slots=True)
class CreateSecret(WritePlan):
    """CREATE SECRET."""

    name: Name
    value: bytes = field(repr=False)
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AlterSecret(WritePlan):
    """ALTER SECRET ... AS."""

    name: Name
    value: bytes = field(repr=False)
    if_exists: bool
