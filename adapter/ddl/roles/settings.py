"""ALTER ROLE and ALTER DATABASE ... SET: settings with which later sessions begin."""

from msgspec.structs import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.roles.names import current_role, refuse_public, role_of
from foreshore.adapter.rights.roles import NO_ROLE, require_settable
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.item import Database, Role
from foreshore.catalog.rights import owns
from foreshore.catalog.roles import check_not_predefined, may_create_roles, role_called
from foreshore.catalog.state import State
from foreshore.errors import FeatureNotSupported, InsufficientPrivilege, InvalidCatalogName
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
    return [*found.settings.items(), *role.settings.items(), *of_both.items()]


def set_role_setting(context: StatementContext, plan: SetRoleSetting) -> Completed:
    """Run ALTER ROLE or ALTER DATABASE ... SET or RESET."""
    actor, change = current_role(context), context.catalog_change()
    if plan.setting is not None:
        require_settable(actor, plan.setting)
    database = None
    if plan.database is not None:
        database = change.state.database(plan.database)
        if database is None:
            raise InvalidCatalogName(f'database "{plan.database}" does not exist')
    if plan.of_database:
        assert database is not None
        if not owns(change.state, actor, database.owner):
            raise InsufficientPrivilege(f"must be owner of database {database.name}")
        settings = _changed(context, database.settings, plan)
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
        return replace(role, settings=_changed(context, role.settings, plan))
    settings = _changed(context, role.database_settings.get(database.id, {}), plan)
    others = {id: each for id, each in role.database_settings.items() if id != database.id}
    return replace(
        role, database_settings={**others, database.id: settings} if settings else others
    )


def _check_may_set(actor: Role, role: Role) -> None:
    if role.superuser and not actor.superuser:
        raise InsufficientPrivilege("must be superuser to alter superusers")
    if not may_create_roles(actor) and role.id != actor.id:
        raise InsufficientPrivilege("permission denied")


def _changed(context: StatementContext, settings: Settings, plan: SetRoleSetting) -> Settings:
    """Return settings after SET or RESET; the value of SET is checked as that of a session."""
    if plan.setting is None:
        return {}
    known = VARIABLES.get(plan.setting)
    name = plan.setting if known is None else known.name
    if plan.values == ():
        value = context.variables.show(plan.setting)
    elif name == "role" and plan.values:
        (value,) = plan.values  # whether the session may have it is decided at login
        if value != NO_ROLE:
            role_called(context.planner.state, value)
    else:
        checked = Variables({})
        checked.set(plan.setting, plan.values)
        is_text = plan.values is not None and len(plan.values) == 1 and name != "search_path"
        value = plan.values[0] if is_text and plan.values else checked.show(plan.setting)
    kept = {each: text for each, text in settings.items() if each != name}
    return kept if plan.values is None else {**kept, name: value}
