"""Plans of statements about network policies."""

from dataclasses import dataclass

from foreshore.network_policy import NetworkRule
from foreshore.sql.plan.query import WritePlan


@dataclass(frozen=True, slots=True)
class CreateNetworkPolicy(WritePlan):
    name: str
    rules: tuple[NetworkRule, ...]


@dataclass(frozen=True, slots=True)
class AlterNetworkPolicy(WritePlan):
    """ALTER NETWORK POLICY ... SET (RULES ...): replace the rules."""

    name: str
    rules: tuple[NetworkRule, ...]
