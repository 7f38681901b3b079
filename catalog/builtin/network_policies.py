"""The rows of the relations of network policies."""

from collections.abc import Iterator

import msgspec

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import NetworkPolicy
from foreshore.network_policy import DEFAULT, OPEN, NetworkRule


def policy_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_network_policies, the default one first."""
    yield {"id": "s1", "name": DEFAULT, "owner_id": "s1"}
    for each in snapshot.state.all(NetworkPolicy):
        yield {"id": each.id, "name": each.name, "owner_id": each.owner, "oid": each.oid}


def rule_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_network_policy_rules."""
    every: list[tuple[str, tuple[NetworkRule, ...]]] = [("s1", OPEN)]
    every += [(each.id, each.rules) for each in snapshot.state.all(NetworkPolicy)]
    for id, rules in every:
        for rule in rules:
            yield {"policy_id": id, **msgspec.structs.asdict(rule)}
