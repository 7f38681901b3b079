"""The session variables, with PostgreSQL's names, values and errors.

Each has a kind: a function that checks a value and returns it as SHOW writes it.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import available_timezones

from foreshore.calendar import zone_named
from foreshore.client_encodings import encoding_named
from foreshore.errors import FeatureNotSupported, InvalidParameterValue
from foreshore.postgres_settings import PostgresSetting, postgres_settings
from foreshore.sizes import bytes_of, shown
from foreshore.text import truncate_name

SERVER_VERSION = "15.0"
SERVER_VERSION_NUM = "150000"
MZ_VERSION = "v0.130.0 (foreshore)"
VERSION = f"PostgreSQL {SERVER_VERSION} (Foreshore 0.1.0), 64-bit"

Kind = Callable[[str, str], str]  # (name, text) -> canonical text; raises InvalidParameterValue


def _invalid(name: str, text: str) -> InvalidParameterValue:
    return InvalidParameterValue(f'invalid value for parameter "{name}": "{text}"')


def text(name: str, value: str) -> str:
    """Take any text."""
    return value


def fraction(name: str, value: str) -> str:
    """Take a number from 0 to 1."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidParameterValue(f'invalid value for parameter "{name}": "{value}"')
    return f"{number:g}"


_BOOLEANS = ((("true", "yes", "on", "1"), "on"), (("false", "no", "off", "0"), "off"))


def boolean(name: str, value: str) -> str:
    """Take a Boolean in any of PostgreSQL's spellings."""
    word = value.strip().lower()
    if word:
        for spellings, canonical in _BOOLEANS:
            if any(spelling.startswith(word) for spelling in spellings) and word != "o":
                return canonical
    raise InvalidParameterValue(f'parameter "{name}" requires a Boolean value')


@dataclass(frozen=True, slots=True)
class Choice:
    """A kind that takes one of `values`, whatever its case."""

    values: tuple[str, ...]

    def __call__(self, name: str, value: str) -> str:
        """Return the value as it is spelled in `values`."""
        for each in self.values:
            if each.lower() == value.strip().lower():
                return each
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint=f"Available values: {', '.join(self.values)}.",
        )


def choice(*values: str) -> Kind:
    """Take one of `values`."""
    return Choice(values)


def ascii_name(name: str, value: str) -> str:
    """Take up to 63 bytes, with `?` for each that is no printable ASCII, as PostgreSQL does."""
    return "".join([chr(b) if 32 <= b <= 126 else "?" for b in truncate_name(value).encode()])


def byte_size(name: str, value: str) -> str:
    """Take a size such as `500MB`, shown in the largest unit in which it is whole; 0 is none."""
    if value.strip() == "0":
        return "0"
    try:
        size = bytes_of(value.strip() + ("B" if value.strip().isdigit() else ""))
        return shown(size).replace(" bytes", "B").replace(" ", "")
    except ValueError:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint='Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".',
        ) from None


def integer(low: int, high: int) -> Kind:
    """Take a whole number from `low` to `high`."""

    def parse(name: str, value: str) -> str:
        try:
            number = int(value.strip())
        except ValueError:
            raise _invalid(name, value) from None
        if not low <= number <= high:
            raise InvalidParameterValue(
                f'{number} is outside the valid range for parameter "{name}" ({low} .. {high})'
            )
        return str(number)

    return parse


BOUNDED_STALENESS = "bounded staleness "

_UNITS = {"us": 0.001, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]*)\s*\Z")


@lru_cache(256)
def milliseconds(value: str) -> int | None:
    """Return `value`, a number with an optional unit, in milliseconds; None if it is not one."""
    match = _DURATION.match(value.lower())
    if match is None or (match[2] or "ms") not in _UNITS:
        return None
    span = float(match[1]) * _UNITS[match[2] or "ms"]
    return round(span) if math.isfinite(span) else None


def isolation(name: str, value: str) -> str:
    """Take an isolation level, or `bounded staleness` and a time span."""
    words = value.strip().lower()
    if words.startswith(BOUNDED_STALENESS):
        return BOUNDED_STALENESS + duration(name, words.removeprefix(BOUNDED_STALENESS))
    return choice(*_LEVELS, "bounded staleness <duration>")(name, value)


def least_duration(name: str, value: str) -> str:
    """Take a time span from which on something is done, or -1 for never."""
    return "-1" if value.strip() == "-1" else duration(name, value)


def duration(name: str, value: str) -> str:
    """Take a time span, shown in the largest unit that divides it."""
    ms = milliseconds(value)
    if ms is None:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint='Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".',
        )
    if not -(2**31) <= ms < 2**31:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"', hint="Value exceeds integer range."
        )
    if ms < 0:
        raise InvalidParameterValue(
            f'{ms} ms is outside the valid range for parameter "{name}" (0 .. 2147483647)'
        )
    if ms == 0:
        return "0"
    for unit in ("d", "h", "min", "s"):
        if ms % _UNITS[unit] == 0:
            return f"{ms // int(_UNITS[unit])}{unit}"
    return f"{ms}ms"


def retention(name: str, value: str) -> str:
    """Take a time span of any length, shown as it is given."""
    ms = milliseconds(value)
    if ms is None or ms < 0:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint='Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".',
        )
    return value.strip() if ms else "0"


def seconds(name: str, value: str) -> str:
    """Take a time span of whole seconds, which is also what a number without a unit is."""
    return duration(name, f"{value}s" if value.strip().lstrip("+-").isdigit() else value)


_STYLES = {"iso": "ISO", "default": "ISO", "sql": "SQL", "postgres": "Postgres"}
_ORDERS = ("mdy", "us", "noneuro", "noneuropean")
_OTHER_WORDS = ("german", "dmy", "euro", "european", "ymd")


def datestyle(name: str, value: str) -> str:
    """Take a style, and the only supported order of fields; PostgreSQL's others are refused."""
    style = "ISO"
    for word in filter(None, re.split(r"[,\s]+", value.strip().lower())):
        if word in _OTHER_WORDS:
            raise FeatureNotSupported(f'date style "{value}" is not supported')
        if word not in _STYLES and word not in _ORDERS:
            raise _invalid(name, value)
        style = _STYLES.get(word, style)
    return f"{style}, MDY"


def encoding(name: str, value: str) -> str:
    """Take the name of an encoding, in any spelling, and return PostgreSQL's."""
    found = encoding_named(value)
    if found is None:
        raise _invalid(name, value)
    return found


_ZONES = {zone.lower(): zone for zone in available_timezones()}
_HOURS = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)\Z")
_CLOCK = re.compile(r"([+-]?)(\d{1,3}):([0-5]\d)\Z")


def timezone(name: str, value: str) -> str:
    """Take a zone of the IANA data base, or hours east of Greenwich as PostgreSQL shows them.

    `UTC+3`, `<-03>+03` and `+03:00` count westwards, as in PostgreSQL and POSIX.
    """
    word = value.strip()
    if word.lower() in ("default", "local"):
        return "UTC"
    zone = _ZONES.get(word.lower())
    if zone is not None:
        return zone
    if _HOURS.match(word) is not None and abs(float(word)) < 168:
        return fixed_zone(round(float(word) * 60))
    clock = _CLOCK.match(word)
    if clock is not None and int(clock[2]) < 168:  # westwards, as in POSIX
        minutes = int(clock[2]) * 60 + int(clock[3])
        return fixed_zone(minutes if clock[1] == "-" else -minutes)
    try:
        zone_named(word)
    except InvalidParameterValue:
        raise _invalid(name, value) from None
    return word


def fixed_zone(minutes: int) -> str:
    """Return the zone that is so many minutes east of Greenwich, as PostgreSQL shows it."""
    hours, rest = divmod(abs(minutes), 60)
    amount = f"{hours:02}" + (f":{rest:02}" if rest else "")
    east, west = ("+", "-") if minutes >= 0 else ("-", "+")
    return f"<{east}{amount}>{west}{amount}"


_LEVELS = (
    "read uncommitted",
    "read committed",
    "repeatable read",
    "serializable",
    "strict serializable",
)
_MESSAGES = ("debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: its name in SHOW ALL, its kind and its default."""

    name: str
    kind: Kind
    default: str
    description: str = ""
    report: bool = False  # to the client, as ParameterStatus
    fixed: bool = False
    superuser: bool = False  # only superusers may set it
    hidden: bool = False  # only superusers may see it
    server: bool = False  # the server's own, set by ALTER SYSTEM alone
    is_own: bool = True  # has an effect; each session has its value


NO_EFFECT = "Has no effect; it tunes PostgreSQL."
_ALL = (
    Variable("application_name", ascii_name, "", "Sets the application name.", report=True),
    Variable(
        "audit_retention",
        retention,
        "365d",
        "Sets how long events of the audit are kept; 0 is for ever.",
        fixed=True,
        server=True,
    ),
    Variable("auto_route_catalog_queries", boolean, "on"),
    Variable(
        "bulk_engine",
        choice("auto", "duckdb", "spark"),
        "auto",
        "Sets which engine of an embedded cluster evaluates queries that no index answers.",
    ),
    Variable(
        "bulk_threshold",
        byte_size,
        "16GB",
        "Sets from how many bytes of files on queries run on Spark, if bulk_engine is auto.",
    ),
    Variable("bytea_output", choice("hex", "escape"), "hex", "Sets the output format for bytea."),
    Variable("client_encoding", encoding, "UTF8", "Sets the client's encoding.", report=True),
    Variable("client_min_messages", choice(*_MESSAGES), "notice"),
    Variable("client_connection_check_interval", duration, "0"),
    Variable("cluster", text, "quickstart", "Sets the cluster that answers queries.", report=True),
    Variable(
        "cluster_replica",
        text,
        "",
        "Sets the one replica of the cluster that answers queries.",
        report=True,
    ),
    Variable("current_object_missing_warnings", boolean, "on"),
    Variable("database", text, "foreshore", "Sets the current database.", report=True),
    Variable("DateStyle", datestyle, "ISO, MDY", "Sets the display of dates.", report=True),
    Variable("config_file", text, "", "There is none.", fixed=True, hidden=True),
    Variable("data_directory", text, "", fixed=True, hidden=True),
    Variable("default_transaction_isolation", isolation, "strict serializable"),
    Variable("default_transaction_read_only", boolean, "off", report=True),
    Variable(
        "emit_timestamp_notice", boolean, "off", "Tells of each query at which time it reads."
    ),
    Variable("extra_float_digits", integer(-15, 3), "1", "Sets the digits shown of floats."),
    Variable("hba_file", text, "", "The file of who may connect.", fixed=True, hidden=True),
    Variable("ident_file", text, "", "The file of user names.", fixed=True, hidden=True),
    Variable("idle_in_transaction_session_timeout", duration, "2min"),
    Variable("idle_session_timeout", duration, "0"),
    Variable("in_hot_standby", boolean, "off", report=True, fixed=True),
    Variable("integer_datetimes", boolean, "on", report=True, fixed=True),
    Variable(
        "IntervalStyle",
        choice("postgres", "postgres_verbose", "sql_standard", "iso_8601"),
        "postgres",
        "Sets the display of intervals.",
        report=True,
    ),
    Variable("is_superuser", boolean, "on", report=True, fixed=True),
    Variable("jit", boolean, "off"),
    Variable("check_function_bodies", boolean, "on"),
    Variable("default_table_access_method", text, "heap", "", fixed=True),
    Variable("default_tablespace", text, ""),
    Variable("lc_collate", text, "C", fixed=True),
    Variable("lc_ctype", text, "C.UTF-8", fixed=True),
    Variable("lc_messages", text, "C", superuser=True),
    Variable("log_connections", boolean, "off", "Logs each session that begins.", superuser=True),
    Variable("log_disconnections", boolean, "off", "Logs the end of a session.", superuser=True),
    Variable(
        "log_min_duration_statement",
        least_duration,
        "-1",
        "Logs all statements that take at least this time; -1 turns it off.",
        superuser=True,
    ),
    Variable("lc_monetary", text, "C"),
    Variable("lc_numeric", text, "C"),
    Variable("lc_time", text, "C"),
    Variable("lock_timeout", duration, "0"),
    Variable(
        "max_query_result_size",
        byte_size,
        "0",
        "Sets how large the result of a query may be; 0 is no limit.",
    ),
    Variable(
        "max_query_memory",
        byte_size,
        "0",
        "Sets how much memory a query or the changes of a transaction may take; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_result_rows",
        integer(0, 2**31 - 1),
        "0",
        "Sets how many rows the result of a query may have; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_result_size",
        byte_size,
        "0",
        "Sets how large the result of a query may be, whatever the session sets; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_scan_size",
        byte_size,
        "0",
        "Sets how much of what is stored a query may read; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_statement_time",
        duration,
        "0",
        "Sets how long a statement may take, whatever the session sets; 0 is no limit.",
        superuser=True,
    ),
    Variable("max_identifier_length", integer(63, 63), "63", fixed=True),
    Variable("max_index_keys", integer(32, 32), "32", fixed=True),
    Variable("mz_version", text, MZ_VERSION, report=True, fixed=True),
    Variable(
        "real_time_recency",
        boolean,
        "off",
        "Lets queries see all that systems outside held when they came; tables always do.",
    ),
    Variable(
        "real_time_recency_timeout",
        duration,
        "10s",
        "Sets how long a query waits for systems outside.",
    ),
    Variable(
        "network_policy",
        text,
        "default",
        "Sets from where clients may connect.",
        fixed=True,
        superuser=True,
        server=True,
    ),
    Variable(
        "restrict_to_user_objects",
        boolean,
        "off",
        "Refuses to read system relations, but for the information schema.",
        superuser=True,
    ),
    Variable("role", text, "none", "Sets the current role.", fixed=True),
    Variable("row_security", boolean, "on"),
    Variable("search_path", text, "public", "Sets the schemas searched for names.", report=True),
    Variable("server_encoding", text, "UTF8", report=True, fixed=True),
    Variable("server_version", text, SERVER_VERSION, report=True, fixed=True),
    Variable("server_version_num", text, SERVER_VERSION_NUM, fixed=True),
    Variable("session_authorization", text, "foreshore", report=True, fixed=True),
    Variable(
        "sql_dialect",
        choice("postgres", "spark", "snowflake"),
        "postgres",
        "Sets in whose spelling queries are written.",
    ),
    Variable("standard_conforming_strings", choice("on"), "on", report=True),
    Variable(
        "statement_logging_sample_rate",
        fraction,
        "1",
        "Sets which part of the statements mz_internal.mz_recent_activity_log keeps.",
        superuser=True,
    ),
    Variable("statement_timeout", duration, "0", "Sets how long a statement may take."),
    Variable("synchronize_seqscans", boolean, "on"),
    Variable(
        "synchronous_commit", choice("on", "off", "local", "remote_write", "remote_apply"), "on"
    ),
    Variable("tcp_keepalives_count", integer(0, 2**31 - 1), "0"),
    Variable("tcp_keepalives_idle", seconds, "0"),
    Variable("tcp_keepalives_interval", seconds, "0"),
    Variable("tcp_user_timeout", duration, "0"),
    Variable("TimeZone", timezone, "UTC", "Sets the time zone.", report=True),
    Variable(
        "transaction_timeout",
        duration,
        "0",
        "Sets how long a transaction may take.",
    ),
    Variable("transaction_isolation", isolation, "strict serializable"),
    Variable("transaction_read_only", boolean, "off"),
    Variable("transaction_deferrable", boolean, "off"),
    Variable("welcome_message", boolean, "on"),
    Variable("xmloption", choice("content", "document"), "content"),
)
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_OWN = {each.name.lower(): each for each in _ALL}


def _only_default(setting: PostgresSetting, kind: Kind) -> Kind:
    """Return a kind that takes no other value than the setting's default."""

    def parse(name: str, value: str) -> str:
        if kind(name, value) != setting.default:
            raise FeatureNotSupported(f'parameter "{name}" cannot be set to "{value}"')
        return setting.default

    return parse


def _of_postgresql(setting: PostgresSetting) -> Variable:
    """Return the variable of a setting of PostgreSQL that has no effect here."""
    kinds: dict[str, Kind] = {"bool": boolean, "enum": choice(*setting.words), "string": text}
    kind = kinds.get(setting.type) or (lambda _, value: setting.checked(value))
    if setting.is_kept:
        kind = _only_default(setting, kind)
    return Variable(
        setting.name,
        kind,
        setting.default,
        NO_EFFECT,
        fixed=bool(setting.refusal),
        superuser=setting.context == "superuser",
        is_own=False,
    )


VARIABLES: Mapping[str, Variable] = _OWN | {
    name: _of_postgresql(setting)
    for name, setting in postgres_settings().items()
    if name not in _OWN
}


def split_names(text: str, separator: str = ",") -> tuple[str, ...]:
    """Return the names in a list, such as `search_path`; in lower case unless quoted."""
    return tuple(
        match[2].lower() if match[1] is None else match[1].replace('""', '"')
        for match in re.finditer(rf'"((?:[^"]|"")*)"|([^\s"{separator}]+)', text)
    )


def join_names(names: Iterable[str]) -> str:
    """Return a list of names, each quoted unless it is a plain one."""
    return ", ".join(
        name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"' for name in names
    )
