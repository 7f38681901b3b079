"""pg_settings: the variables of a session with their types, units and bounds."""

from collections.abc import Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.postgres_settings import PostgresSetting, postgres_settings
from foreshore.setting_kinds import Choice, boolean
from foreshore.settings import VARIABLES, Variable


def settings_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the variables that the session may see."""
    return map(setting_row, snapshot.live("pg_settings"))


def setting_row(row: Row) -> Row:
    """Return the row of a variable, of whose name, values and description a row is given."""
    name, value, reset = row["name"], row["setting"], row["reset_val"]
    variable, setting = VARIABLES.get(name.lower()), postgres_settings().get(name.lower())
    known = _kind(variable) if setting is None else _recorded(setting)
    default = reset if variable is None else variable.default

    def written(shown: str) -> str:
        return shown if setting is None else setting.in_units(shown)

    return {
        **row,
        **known,
        "setting": written(value),
        "reset_val": written(reset),
        "boot_val": written(default),
        "source": "default" if value == default else "client" if value == reset else "session",
        "pending_restart": False,
    }


def shown_settings(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the variables that the session may see as SHOW does: `4MB`, not `4096`."""
    for row in snapshot.live("pg_settings"):
        yield {"name": row["name"], "setting": row["setting"]}


def _recorded(setting: PostgresSetting) -> Row:
    """Return the columns of a setting that PostgreSQL has, too."""
    return {
        "unit": setting.unit or None,
        "category": setting.category,
        "context": setting.context,
        "vartype": setting.type,
        "min_val": setting.low or None,
        "max_val": setting.high or None,
        "enumvals": list(setting.words) or None,
    }


def _kind(variable: Variable | None) -> Row:
    """Return the columns of a variable of our own; a custom one has no `variable`."""
    if variable is None:
        return {"category": "Customized Options", "context": "user", "vartype": "string"}
    words = variable.kind.values if isinstance(variable.kind, Choice) else ()
    type = "bool" if variable.kind is boolean else "enum" if words else "string"
    context = "internal" if variable.fixed else "superuser" if variable.superuser else "user"
    return {
        "category": "Foreshore",
        "context": context,
        "vartype": type,
        "enumvals": list(words) or None,
    }
