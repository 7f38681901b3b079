"""The variables of a session: SET, SHOW and RESET.

A change is part of its transaction: ROLLBACK undoes it, and SET LOCAL lasts until the end. The
client is sent each change of a variable that the protocol reports.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from foreshore.errors import (
    CantChangeRuntimeParam,
    InvalidParameterValue,
    Unavailable,
    UndefinedObject,
)
from foreshore.postgres_settings import postgres_settings
from foreshore.random_values import RandomValues
from foreshore.session_limits import LONG, Kept
from foreshore.settings import VARIABLES, Variable, join_names, split_names
from foreshore.statement_settings import StatementSettings, statement_settings

OF_ROLES = frozenset(("role", "session_authorization", "is_superuser"))
_ALIASES = {"time zone": "timezone", "transaction isolation level": "transaction_isolation"}
_OF_TRANSACTION = ("transaction_isolation", "transaction_read_only", "transaction_deferrable")
MOST_CUSTOM = 1000  # settings of applications
LONGEST_REPORTED = 8192  # bytes: libpq closes the connection at 30,000, in any encoding
_CUSTOM = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)+\Z")


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """The values at a savepoint; `held` are the characters of long ones that it alone keeps."""

    present: Mapping[str, str]
    set: Mapping[str, str]  # without those that are local to the transaction
    held: int
    version: int


# What a plan, the meaning of a name or a right depends on.
OF_PLANS = (
    "cluster",
    "database",
    "restrict_to_user_objects",
    "role",
    "row_security",
    "search_path",
    "session_authorization",
    "timezone",
)


class Variables(dict[str, str]):
    """The present values of the variables of one session, by name in lower case.

    It is `touched` if some were set in the running transaction. The other dictionaries hold only
    what differs from the system's defaults, and are replaced, never changed, so that they can be
    shared: else copies of defaults would be most of the memory of an idle connection.
    """

    def __init__(self, defaults: Mapping[str, str]) -> None:
        super().__init__(_DEFAULTS)
        self._defaults = {
            name.lower(): self._parse(name, (value,)) for name, value in defaults.items()
        }
        self.update(self._defaults)
        self._values: Mapping[str, str] = dict(self._defaults)  # as of the last commit
        self._set: Mapping[str, str] = (
            self._values
        )  # without those that are local to the transaction
        self._reported: dict[str, str] = {}
        self.reported_version = -1
        self.touched = False
        self.version = 0  # grows with every change
        self.plan_version = 0  # grows when one changes that plans, names or rights depend on
        self._marks: list[Mark] = []  # of the transaction's savepoints
        self._short_version = -1  # at which no value was long
        self.random = RandomValues()  # whose seed no transaction undoes
        self.kept = Kept(self)
        self.kept.count(self._size)

    @cached_property
    def settings(self) -> StatementSettings:
        """What each statement asks for, until a value changes."""
        return statement_settings(self, self.version)

    def _begin_version(self) -> None:
        self.version += 1
        self.__dict__.pop("settings", None)

    def _size(self) -> int:
        kept = sum(map(len, self._values.values())) + sum(mark.held for mark in self._marks)
        return kept + sum(self._new().values())

    def _new(self) -> dict[int, int]:
        """Return the lengths of long values that no savepoint keeps, nor the last commit, by id."""
        if self._short_version == self.version:
            return {}
        found = {
            id(value): len(value)
            for values in (self, self._set)
            for value in values.values()
            if len(value) >= LONG
        }
        if found:
            before = [self._values]
            if self._marks:
                before += (self._marks[-1].present, self._marks[-1].set)
            for values in before:
                for value in values.values():
                    found.pop(id(value), None)
        else:
            self._short_version = self.version
        return found

    def _replaced(self, key: str, *, local: bool) -> int:
        """Return how many characters are kept no more when a variable gets another value."""
        kept = self._set.get(key)
        gone = {id(self.get(key))} - {id(kept)} if local else {id(self.get(key)), id(kept)}
        new = self._new()
        return sum(new.get(each, 0) for each in gone)

    def show(self, name: str) -> str:
        """Return the value for SHOW; raises UndefinedObject if there is no such variable."""
        value = self.show_if_known(name)
        if value is None:
            raise _unknown(name)
        return value

    def show_if_known(self, name: str) -> str | None:
        """Return the value for SHOW; None if there is no such variable."""
        key = self._key(name)
        value = self.get(key)
        return self._default(key) if value is None and key in VARIABLES else value

    def reset_value(self, name: str) -> str:
        """Return the value that RESET gives a variable."""
        return self._default(self._key(name))

    def show_all(self, only: str | None = None) -> Iterator[tuple[str, str, str]]:
        """Yield name, value and description of all, in order, or of the one with a name."""
        keys = sorted(self.keys() | VARIABLES.keys()) if only is None else [only.lower()]
        for key in keys:
            known = VARIABLES.get(key)
            name, value = known.name if known else key, self.show_if_known(key)
            if value is not None and only in (None, name):
                yield name, value, known.description if known else ""

    def set(self, name: str, values: tuple[str, ...] | None, *, local: bool = False) -> None:
        """Set a variable, to its default if `values` is None."""
        key = self._key(name)
        known = VARIABLES.get(key)
        if known is None and not _CUSTOM.match(name):
            raise _unknown(name)
        if known is None and values is not None and key not in self:
            self._check_number()
        if values is None:
            value = self._default(key)
            if known is not None and known.fixed:
                return
        else:
            value = self._parse(name, values)
            if known is not None and known.fixed and value != self.show(key):
                setting = postgres_settings().get(key)
                why = (setting and setting.refusal) or "cannot be changed"
                raise CantChangeRuntimeParam(f'parameter "{known.name}" {why}')
        self.assign(key, value, local=local)

    def _check_number(self) -> None:
        """Raise Unavailable 53200 if there are as many settings of applications as may be."""
        if sum(key not in VARIABLES for key in self) >= MOST_CUSTOM:
            raise Unavailable(
                "out of shared memory",
                detail=f"A session may have {MOST_CUSTOM} settings of applications.",
                sqlstate="53200",
            )

    def assign(self, key: str, value: str, *, local: bool = False) -> None:
        """Set a variable to a checked value, as part of the transaction.

        Raises SessionLimitExceeded if the session keeps too much.
        """
        if len(value) >= LONG:
            self.kept.check_room(len(value), instead_of=self._replaced(key, local=local))
        self.touched = True
        self._begin_version()
        self.plan_version += key in OF_PLANS
        self[key] = value
        if not local:
            self._set = {**self._set, key: value}

    def set_default(self, name: str, value: str) -> None:
        """Set a variable and its default, as the client asks at the start of its session."""
        self.set(name, (value,))
        self.set_fixed(self._key(name), self[self._key(name)])
        self.commit()  # its first transaction begins with the defaults for transactions

    def set_fixed(self, name: str, value: str) -> None:
        """Set a variable that only the system may set, such as the name of the role."""
        self._begin_version()
        self.plan_version += 1
        self._defaults[name] = self[name] = value
        self._values = {**self._values, name: value}
        self._set = {**self._set, name: value}

    def reset_all(self) -> None:
        """Set all variables to their defaults, except those of the transaction and the roles."""
        if not self.touched and all(map(self._has_default, self._set)):
            return
        self.touched = True
        self._begin_version()
        self.plan_version += 1
        kept = dict(self._set)
        for key in list(self):
            if key not in _OF_TRANSACTION and key not in OF_ROLES:
                self[key] = default = self._default(key)
                if key in VARIABLES and default == VARIABLES[key].default:
                    kept.pop(key, None)
                else:
                    kept[key] = default
        self._set = kept

    def _has_default(self, key: str) -> bool:
        is_kept = key in _OF_TRANSACTION or key in OF_ROLES
        return is_kept or self[key] == self._default(key)

    def _default(self, key: str) -> str:
        known = VARIABLES.get(key)
        return self._defaults.get(key, known.default if known is not None else "")

    def commit(self) -> None:
        """Keep the values set in the transaction, except local ones; forget its marks."""
        self._marks.clear()
        if not self.touched:
            return
        self.touched = False
        self._begin_version()
        before = [self.get(name) for name in OF_PLANS]
        kept = dict(self._set)
        for name in ("transaction_isolation", "transaction_read_only"):
            default = f"default_{name}"
            kept[name] = kept.get(default, _DEFAULTS[default])
        self._set = self._values = kept
        self.clear()
        self.update(_DEFAULTS)
        self.update(kept)
        self.plan_version += before != [self.get(name) for name in OF_PLANS]

    def rollback(self) -> None:
        """Undo the changes of the transaction."""
        if self.touched:
            self._set = self._values
        self.commit()

    def mark(self) -> Mark:
        """Return the present values, for `return_to`, until `release` or the transaction's end."""
        mark = Mark(dict(self), self._set, sum(self._new().values()), self.version)
        self._marks.append(mark)
        return mark

    def release(self, mark: Mark) -> None:
        """Forget a mark and those after it."""
        del self._marks[self._marks.index(mark) :]

    def return_to(self, mark: Mark) -> None:
        """Return to the values at `mark`, in the same transaction; forget the marks after it."""
        del self._marks[self._marks.index(mark) + 1 :]
        if mark.version == self.version:
            return
        self._set = mark.set
        self.clear()
        self.update(mark.present)
        self.touched = True
        self._begin_version()
        self.plan_version += 1

    def drain_reports(self) -> dict[str, str]:
        """Return the reported variables that changed since the last call."""
        changed: dict[str, str] = {}
        if self.reported_version == self.version:
            return changed
        self.reported_version = self.version
        for key in _REPORTED:
            value = self[key]
            if self._reported.get(key) != value:
                assert len(value.encode()) <= LONGEST_REPORTED, (key, len(value))
                self._reported[key] = value
                changed[VARIABLES[key].name] = value
        return changed

    def _key(self, name: str) -> str:
        key = name.lower()
        return _ALIASES.get(key, key)

    def _parse(self, name: str, values: tuple[str, ...]) -> str:
        """Return the value as SHOW writes it; raises InvalidParameterValue if it cannot be set."""
        key = self._key(name)
        known = VARIABLES.get(key)
        if known is None:
            return ", ".join(values)
        value = self._parse_known(known, key, values)
        if known.report and (size := len(value.encode())) > LONGEST_REPORTED:
            raise InvalidParameterValue(
                f'invalid value for parameter "{known.name}"',
                detail=f"Its value has {size} bytes. Clients are sent at most {LONGEST_REPORTED}.",
            )
        return value

    def _parse_known(self, known: Variable, key: str, values: tuple[str, ...]) -> str:
        if key == "search_path":
            if len(values) == 1 and ("," in values[0] or '"' in values[0]):
                values = split_names(values[0])
            return join_names(values)
        if len(values) != 1 and key != "datestyle":
            raise InvalidParameterValue(f"SET {known.name} takes only one argument")
        return known.kind(known.name, ", ".join(values))


# The values that each session has; others are those of `VARIABLES` until they are set.
_DEFAULTS: Mapping[str, str] = {
    name: each.default for name, each in VARIABLES.items() if each.is_own
}
_REPORTED = tuple(name for name, each in VARIABLES.items() if each.report)


def _unknown(name: str) -> UndefinedObject:
    return UndefinedObject(f'unrecognized configuration parameter "{name}"')
