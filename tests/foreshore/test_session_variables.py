"""SET, SHOW and RESET, with PostgreSQL's canonical values and errors."""

from contextlib import suppress

import pytest

from foreshore.errors import (
    CantChangeRuntimeParam,
    DatabaseError,
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedObject,
)
from foreshore.session_variables import LONGEST_REPORTED, Variables
from foreshore.settings import VARIABLES, split_names


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("statement_timeout", "1500", "1500ms"),
        ("statement_timeout", "60s", "1min"),
        ("statement_timeout", "0", "0"),
        ("datestyle", "ISO", "ISO, MDY"),
        ("client_encoding", "'utf-8'", "UTF8"),
        ("TimeZone", "europe/berlin", "Europe/Berlin"),
        ("TIME ZONE", "+2", "<+02>-02"),
        ("timezone", "-3:30", "<+03:30>-03:30"),
        ("standard_conforming_strings", "on", "on"),
        ("extra_float_digits", "3", "3"),
        ("row_security", "f", "off"),
        ("IntervalStyle", "Postgres", "postgres"),
        ("my.own", "x", "x"),
    ],
)
def test_values_are_shown_in_canonical_form(name: str, given: str, shown: str) -> None:
    variables = Variables({})
    variables.set(name, (given,))
    assert variables.show(name) == shown


@pytest.mark.parametrize(
    ("name", "value", "sqlstate", "message"),
    [
        ("nonesuch", "1", "42704", 'unrecognized configuration parameter "nonesuch"'),
        ("row_security", "maybe", "22023", 'parameter "row_security" requires a Boolean value'),
        ("DateStyle", "sql, dmy", "0A000", 'date style "sql, dmy" is not supported'),
        ("DateStyle", "x", "22023", 'invalid value for parameter "DateStyle": "x"'),
        ("IntervalStyle", "iso", "22023", 'invalid value for parameter "IntervalStyle": "iso"'),
        ("TimeZone", "Nowhere", "22023", 'invalid value for parameter "TimeZone": "Nowhere"'),
        ("server_version", "9", "55P02", 'parameter "server_version" cannot be changed'),
        (
            "extra_float_digits",
            "4",
            "22023",
            '4 is outside the valid range for parameter "extra_float_digits" (-15 .. 3)',
        ),
        ("lock_timeout", "99d", "22023", 'invalid value for parameter "lock_timeout": "99d"'),
        (
            "lock_timeout",
            "-1s",
            "22023",
            '-1000 ms is outside the valid range for parameter "lock_timeout" (0 .. 2147483647)',
        ),
    ],
)
def test_invalid_values_are_refused(name: str, value: str, sqlstate: str, message: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        Variables({}).set(name, (value,))
    assert (refused.value.sqlstate, refused.value.message) == (sqlstate, message)


def test_unknown_variables_have_no_value() -> None:
    with pytest.raises(UndefinedObject):
        Variables({}).show("nonesuch")


def test_rollback_restores_and_set_local_ends_with_transaction() -> None:
    variables = Variables({"application_name": "psql"})
    variables.set("cluster", ("a",))
    variables.commit()
    variables.set("cluster", ("b",))
    variables.set("application_name", ("x",), local=True)
    assert variables["application_name"] == "x"
    variables.rollback()
    assert (variables["cluster"], variables["application_name"]) == ("a", "psql")
    variables.set("cluster", ("c",), local=True)
    variables.set("application_name", None)
    variables.commit()
    assert (variables["cluster"], variables["application_name"]) == ("a", "psql")


def test_changed_variable_is_reported_once() -> None:
    variables = Variables({})
    assert variables.drain_reports()["server_version"] == "15.0"
    assert variables.drain_reports() == {}
    variables.set("TimeZone", ("Europe/Paris",))
    variables.set("cluster", ("x",))
    variables.set("lock_timeout", ("1s",))
    assert variables.drain_reports() == {"TimeZone": "Europe/Paris", "cluster": "x"}


def test_fixed_variable_accepts_its_own_value() -> None:
    variables = Variables({})
    variables.set("integer_datetimes", ("on",))
    with pytest.raises(CantChangeRuntimeParam):
        variables.set("integer_datetimes", ("off",))


def test_search_path_is_a_list_of_names() -> None:
    variables = Variables({})
    variables.set("search_path", ("$user", "public"))
    assert variables.show("search_path") == '"$user", public'
    assert split_names(variables.show("search_path")) == ("$user", "public")
    variables.set("search_path", ("a, B",))
    assert split_names(variables.show("search_path")) == ("a", "b")
    variables.set("search_path", ("",))
    assert split_names(variables.show("search_path")) == ("",)


def test_first_transaction_begins_with_the_defaults_of_the_client() -> None:
    variables = Variables({})
    variables.set_default("default_transaction_read_only", "on")
    variables.set_default("default_transaction_isolation", "serializable")
    assert variables.show("transaction_read_only") == "on"
    assert variables.show("transaction_isolation") == "serializable"


def test_application_name_is_short_ascii() -> None:
    variables = Variables({"application_name": "m" * 70})
    assert variables["application_name"] == "m" * 63
    variables.set("application_name", ("zur\u00fcck\n" + "n" * 100_000,))
    assert variables["application_name"] == "zur??ck?" + "n" * 55


REPORTED = sorted(name for name, each in VARIABLES.items() if each.report and not each.fixed)
LONG_VALUES = (
    "x" * 40_000,
    "ü" * 20_000,
    ",".join(f"a{number}" for number in range(30_000)),
    f"<{'a' * 40_000}>+3",
    "iso," * 20_000,
    '"' * 40_000,
    f"{'0' * 40_000}1",
    " " * 40_000 + "UTC",
)


@pytest.mark.parametrize("value", LONG_VALUES, ids=lambda value: value[:6])
@pytest.mark.parametrize("name", REPORTED)
def test_value_that_is_reported_is_short_or_refused(name: str, value: str) -> None:
    variables = Variables({})
    with suppress(InvalidParameterValue, FeatureNotSupported):
        variables.set(name, (value,))
    assert all(
        len(each.encode()) <= LONGEST_REPORTED for each in variables.drain_reports().values()
    )


def test_search_path_of_many_names_is_refused() -> None:
    names = tuple(f"a{number}" for number in range(30_000))
    with pytest.raises(InvalidParameterValue, match='value for parameter "search_path"'):
        Variables({}).set("search_path", names)


def test_names_are_cut_as_names_in_statements_are() -> None:
    variables = Variables({"database": "d" * 100})
    variables.set("cluster", ("ü" * 40,))
    assert (variables["database"], variables["cluster"]) == ("d" * 63, "ü" * 31)


def test_a_transaction_that_sets_nothing_keeps_the_version() -> None:
    variables = Variables({})
    variables.commit()
    before = variables.version
    variables.mark()
    variables.release(variables.mark())
    variables.commit()
    assert variables.version == before  # so all prepared statements stay valid
    mark = variables.mark()
    variables.set("timezone", ("Europe/Rome",))
    variables.return_to(mark)
    variables.rollback()
    assert variables.version > before
    assert variables["timezone"] == Variables({})["timezone"]


def test_only_what_plans_depend_on_makes_them_invalid() -> None:
    variables = Variables({})
    before = variables.plan_version
    variables.set("application_name", ("x",))
    variables.set("my.own", ("x",), local=True)
    variables.commit()
    assert variables.plan_version == before
    for name, value in (("search_path", "a"), ("timezone", "Asia/Tokyo"), ("row_security", "off")):
        for end in (variables.commit, variables.rollback):
            before = variables.plan_version
            variables.set(name, (value,), local=True)
            assert variables.plan_version > before
            before = variables.plan_version
            end()
            assert variables.plan_version > before
