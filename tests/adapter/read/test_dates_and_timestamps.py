"""Dates that are compared with timestamps are found by their indexes, in any time zone."""

import pytest

from tests.adapter.harness import TestEnvironment

TABLES = (
    "DROP TABLE IF EXISTS visits",
    "CREATE TABLE visits (id int PRIMARY KEY, d date, guest int, at timestamp, z timestamptz)",
    "CREATE INDEX visits_d ON visits (d)",
    "CREATE INDEX visits_guest ON visits (guest, d)",
    "CREATE INDEX visits_at ON visits (at)",
    "INSERT INTO visits SELECT i, date '2011-12-01' + i, i % 5, timestamp '2011-12-01' + i * interval"
    " '1 day', timestamptz '2011-12-01 00:00+00' + i * interval '1 day' FROM generate_series(0, 70) i",
    "INSERT INTO visits VALUES (100, NULL, 1, NULL), (101, 'infinity', 1, 'infinity'),"
    " (102, '-infinity', 1, '-infinity')",
)
ZONES = ("UTC", "Europe/Berlin", "Pacific/Apia", "America/Los_Angeles")
MOMENTS = (
    "timestamp '2011-12-30 00:00'",
    "timestamp '2012-01-05 10:00'",
    "timestamptz '2011-12-30 10:00+00'",
    "timestamptz '2012-01-05 00:00+01'",
    "timestamptz '2012-01-05'",
    "now() - interval '7 days'",
    "timestamp 'infinity'",
    "timestamptz '-infinity'",
    "NULL::timestamp",
)


@pytest.mark.parametrize("zone", ZONES)
async def test_dates_compare_as_when_they_are_cast(env: TestEnvironment, zone: str) -> None:
    session = f"s {zone}"
    await env.ran(session, *TABLES, f"SET timezone = '{zone}'")
    for moment in MOMENTS:
        type = "timestamptz" if "tz" in moment or "now" in moment else "timestamp"
        for operator in ("<", "<=", ">", ">=", "=", "<>"):
            found = f"SELECT id FROM visits WHERE d {operator} {moment} ORDER BY id"
            cast = f"SELECT id FROM visits WHERE d::{type} {operator} {moment} ORDER BY id"
            assert await env.query(session, found) == await env.query(session, cast), found
            if operator != "<>" and moment != MOMENTS[-1]:
                told = await env.query(session, f"EXPLAIN {found}")
                assert "visits_d of foreshore.public.visits" in told, told
    by_guest = "SELECT id FROM visits WHERE guest = 2 AND d >= timestamptz '2012-01-30' ORDER BY id"
    told = await env.query(session, f"EXPLAIN {by_guest}")
    assert "visits_guest of foreshore.public.visits" in told, told
    assert (await env.query(session, by_guest)).split() == ["62", "67", "SELECT", "2"]


@pytest.mark.parametrize("zone", ZONES)
async def test_timestamps_beside_timestamptz_are_found_by_index(
    env: TestEnvironment, zone: str
) -> None:
    session = f"t {zone}"
    await env.ran(session, *TABLES, f"SET timezone = '{zone}'")
    for moment in ("timestamptz '2012-02-08 01:00+01'", "timestamptz '2011-12-30 10:00+00'"):
        for operator in ("<", "<=", ">", ">=", "="):
            found = f"SELECT id FROM visits WHERE at {operator} {moment} ORDER BY id"
            cast = f"SELECT id FROM visits WHERE at::timestamptz {operator} {moment} ORDER BY id"
            assert await env.query(session, found) == await env.query(session, cast), found
            assert "visits_at of foreshore.public.visits" in await env.query(
                session, f"EXPLAIN {found}"
            )
