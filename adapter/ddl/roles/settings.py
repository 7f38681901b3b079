"""ALTER ROLE and ALTER DATABASE ... SET: settings with which later sessions begin.

Those of ALTER SYSTEM come first, then those of the database, of the role, and of the role in the
database. What only superusers may set, only they may keep or reset.
"""

from msgspec.structs import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.role_names import current_role, refuse_public, role_of
from foreshore.adapter.statement.roles import NO_ROLE, require_settable
from foreshore.catalog.item import Database, Role
from foreshore.catalog.network_policies import rules_of
from foreshore.catalog.rights import owns
from foreshore.catalog.roles import check_not_predefined, may_create_roles, role_called
from foreshore.catalog.state import State
from foreshore.catalog.system_settings import system_settings
from foreshore.errors import (
    CantChangeRuntimeParam,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidCatalogName,
)
from foreshore.network_policy import SETTING
from foreshore.session_variables import Variables
from foreshore.settings import VARIABLES
from foreshore.sql.plan import SetRoleSetting

Settings = dict[str, str]


def settings_at_login(state: State, role: Role, database: str) -> list[tuple[str, str]]:
    """Return the settings with which a session begins; later ones replace earlier ones."""
    found = state.database(database)
    if found is None:
        return []
    of_both = role.database_settings.get(found.id, {})
    of_system = system_settings(state)
    return [
        pair
        for each in (of_system, found.settings, role.settings, of_both)
        for pair in each.items()
    ]


def set_role_setting(context: StatementContext, plan: SetRoleSetting) -> Completed:
    """Run ALTER ROLE or ALTER DATABASE ... SET or RESET."""
    actor, change = current_role(context.planner, context.role), context.catalog_change()
    if plan.setting is not None:
        require_settable(actor, plan.setting)
    database = None
    if plan.database is not None:
        database = change.state.database(plan.database)
        if database is None:
            raise InvalidCatalogName(f'database "{plan.database}" does not exist')
    if database is not None and plan.setting == SETTING:
        raise CantChangeRuntimeParam(f'parameter "{SETTING}" cannot be set for a database')
    if plan.of_database:
        assert database is not None
        if not owns(change.state, actor, database.owner):
            raise InsufficientPrivilege(f"must be owner of database {database.name}")
        settings = changed_settings(context, database.settings, plan.setting, plan.values)
        change.put(replace(database, settings=settings))
        return Completed("ALTER DATABASE")
    if plan.role is None:
        raise FeatureNotSupported("ALTER ROLE ALL is not supported")
    refuse_public(plan.role)
    role = role_of(context, plan.role)
    check_not_predefined(role)
    _check_may_set(actor, role)
    change.put(_with_setting(context, role, database, plan))
    return Completed("ALTER ROLE")


def _with_setting(
    context: StatementContext, role: Role, database: Database | None, plan: SetRoleSetting
) -> Role:
    if database is None:
        kept = changed_settings(context, role.settings, plan.setting, plan.values)
        return replace(role, settings=kept)
    kept = role.database_settings.get(database.id, {})
    settings = changed_settings(context, kept, plan.setting, plan.values)
    others = {id: each for id, each in role.database_settings.items() if id != database.id}
    return replace(
        role, database_settings={**others, database.id: settings} if settings else others
    )


def _check_may_set(actor: Role, role: Role) -> None:
    if role.superuser and not actor.superuser:
        raise InsufficientPrivilege("must be superuser to alter superusers")
    if not may_create_roles(actor) and role.id != actor.id:
        raise InsufficientPrivilege("permission denied")


def changed_settings(
    context: StatementContext,
    settings: Settings,
    setting: str | None,
    values: tuple[str, ...] | None,
    *,
    of_system: bool = False,
) -> Settings:
    """Return settings after SET or RESET; the value of SET is checked as that of a session.

    `setting` None resets all that the role may set, `values` None resets one, and no values take
    the session's. Only those `of_system` may be of the server.
    """
    if setting is None:
        return {} if context.role.superuser else _of_superusers(settings)
    known = VARIABLES.get(setting)
    name = setting if known is None else known.name
    if values == ():
        value = context.variables.show(setting)
    elif name == "role" and values:
        (value,) = values  # whether the session may have it is decided at login
        if value != NO_ROLE:
            role_called(context.planner.state, value)
    elif known is not None and known.server and values and (of_system or name == SETTING):
        value = known.kind(known.name, ", ".join(values))
        if name == SETTING:
            rules_of(context.planner.state, value)
    else:
        checked = Variables({})
        checked.set(setting, values)
        is_text = values is not None and len(values) == 1 and name != "search_path"
        value = values[0] if is_text and values else checked.show(setting)
    kept = {each: text for each, text in settings.items() if each != name}
    return kept if values is None else {**kept, name: value}


def _of_superusers(settings: Settings) -> Settings:
    """Return the settings that only superusers may set."""
    return {
        name: value
        for name, value in settings.items()
        if (known := VARIABLES.get(name.lower())) is not None and known.superuser
    }
