"""ALTER SYSTEM."""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.roles.network_policies import peer_of
from foreshore.adapter.ddl.roles.settings import changed_settings
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.role_names import current_role
from foreshore.catalog.network_policies import check_not_locked_out
from foreshore.catalog.system_settings import set_system_settings, system_settings
from foreshore.errors import CantChangeRuntimeParam, InsufficientPrivilege
from foreshore.network_policy import DEFAULT, SETTING
from foreshore.session_variables import OF_ROLES
from foreshore.sql.plan import AlterSystem

_OF_SESSIONS = OF_ROLES | {"database", "transaction_isolation", "transaction_read_only"}


def alter_system(context: StatementContext, plan: AlterSystem) -> Completed:
    """Run ALTER SYSTEM SET, RESET and RESET ALL."""
    if not current_role(context.planner, context.role).superuser:
        raise InsufficientPrivilege("permission denied to perform ALTER SYSTEM")
    if plan.setting in _OF_SESSIONS:
        raise CantChangeRuntimeParam(f'parameter "{plan.setting}" cannot be changed')
    change = context.catalog_change()
    old = system_settings(change.state)
    new = changed_settings(context, old, plan.setting, plan.values, of_system=True)
    if new.get(SETTING, DEFAULT) != old.get(SETTING, DEFAULT):
        check_not_locked_out(change.state, new.get(SETTING, DEFAULT), peer_of(context))
    if new != old:
        set_system_settings(change, new)
    return Completed("ALTER SYSTEM")
