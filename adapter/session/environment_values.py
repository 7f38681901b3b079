"""What plans may ask of the environment: the session, the transaction, the time of the read.

An `Environment` scalar is only a name. Its value is looked up here when the statement runs, and
only if the plan asks for it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from foreshore.adapter.coordinator import generation_of
from foreshore.adapter.session.catalog_reader import TEMPORARY
from foreshore.adapter.session.side_effects import setting
from foreshore.adapter.session.variables import VERSION, split_list
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

_IMPLICIT = ("mz_catalog", "pg_catalog")
_NAMES = frozenset(
    "now mz_now current_user session_user current_database current_schema current_schemas"
    " current_schemas:true current_schemas:false pg_backend_pid pg_my_temp_schema"
    " pg_advisory_unlock_all"
    " version mz_version".split()
)


class EnvironmentValues(Mapping[str, Callable[[], Datum]]):
    """What plans may ask of the environment, looked up by name."""

    def __init__(self, session: "Session", time: int) -> None:
        self._session = session
        self._time = time

    def __getitem__(self, name: str) -> Callable[[], Datum]:
        return lambda: self._value(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in _NAMES
            or name.startswith(("current_setting:", "current_setting_or_null:", "sequence:"))
        )

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    def _value(self, name: str) -> Datum:
        session = self._session
        path = session.planner.search_path
        match name:
            case "now":
                return session.begin().started
            case "mz_now":
                return self._time
            case "current_user" | "session_user":
                return session.role.name
            case "current_database":
                return session.database
            case "current_schema":
                return next(iter(self._explicit_path()), None)
            case "current_schemas:true" | "current_schemas":
                # mz_catalog is searched too, but tools list all that is visible beside pg_catalog
                named = split_list(session.variables["search_path"])
                hidden = () if "mz_catalog" in named else ("mz_catalog",)
                return tuple(each for each in path() if each not in hidden)
            case "current_schemas:false":
                return self._explicit_path()
            case "pg_backend_pid":
                return session.pid
            case "pg_my_temp_schema":
                schema = session.planner.state.get(session.temporary_schema)
                return schema.oid if schema is not None else 0
            case "pg_advisory_unlock_all":
                session.environment.advisory.release_session(session)
                return ""
            case "version":
                return VERSION
            case "mz_version":
                return session.variables["mz_version"]
            case _ if name.startswith("sequence:"):
                return self._of_sequence(*name.split(":")[1:])
            case _ if name.startswith("current_setting_or_null:"):
                name = name.removeprefix("current_setting_or_null:")
                return setting(session, name, missing_ok=True)
            case _:
                return session.variables.show(name.removeprefix("current_setting:"))

    def _explicit_path(self) -> tuple[str, ...]:
        """Return the schemas that are searched because the setting says so."""
        session = self._session
        named = split_list(session.variables["search_path"])
        hidden = {schema for schema in _IMPLICIT if schema not in named}
        if TEMPORARY not in named:
            hidden.add(session.temporary_schema)
        return tuple(each for each in session.planner.search_path() if each not in hidden)

    def _of_sequence(self, id: str, column: str) -> Datum:
        """Return a column of the row that a sequence is to those who read it."""
        item = self._session.planner.reader().state.item(id)
        sequences = self._session.coordinator.sequences
        position = sequences.position(generation_of(item), item.name)
        return {"last_value": position.last, "log_cnt": 0, "is_called": position.called}[column]
