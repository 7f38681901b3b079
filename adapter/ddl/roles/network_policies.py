"""CREATE and ALTER NETWORK POLICY."""

from foreshore.adapter.client import Completed
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.network_policies import create_policy, policy_called, set_rules
from foreshore.sql.plan import AlterNetworkPolicy, CreateNetworkPolicy


def peer_of(context: StatementContext) -> str:
    """Return where the session's client is."""
    return context.session.backend.address


def create_network_policy(context: StatementContext, plan: CreateNetworkPolicy) -> Completed:
    """Run CREATE NETWORK POLICY."""
    create_policy(context.catalog_change(), plan.name, context.role.id, plan.rules)
    return Completed("CREATE NETWORK POLICY")


def alter_network_policy(context: StatementContext, plan: AlterNetworkPolicy) -> Completed:
    """Run ALTER NETWORK POLICY ... SET (RULES ...)."""
    change = context.catalog_change()
    set_rules(change, policy_called(change.state, plan.name), plan.rules, peer_of(context))
    return Completed("ALTER NETWORK POLICY")
