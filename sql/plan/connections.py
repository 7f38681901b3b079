"""Plans of statements about connections."""

from collections.abc import Mapping
from dataclasses import dataclass

from foreshore.connection_spec import ConnectionKind
from foreshore.item_view import Name
from foreshore.sql.plan.query import WritePlan

# A text, a secret, with SSH TUNNEL a connection, or nothing: the option is removed.
OptionValue = str | Name | None


@dataclass(frozen=True, slots=True)
class CreateConnection(WritePlan):
    """CREATE CONNECTION."""

    name: Name
    kind: ConnectionKind
    options: Mapping[str, OptionValue]
    if_not_exists: bool
    validate: bool = False  # whether its system must be reached first


@dataclass(frozen=True, slots=True)
class AlterConnection(WritePlan):
    """ALTER CONNECTION: the options that change, or that its keys are to be others."""

    name: Name
    options: Mapping[str, OptionValue]
    if_exists: bool
    rotate: bool = False
    validate: bool = False  # whether to reach the external system before the change


@dataclass(frozen=True, slots=True)
class ValidateConnection(WritePlan):
    """VALIDATE CONNECTION: reach the external system, and look at a publication there."""

    name: Name
    publication: str | None = None
